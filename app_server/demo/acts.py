"""The demo's two servers and three turns."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from app_server import __version__
from app_server.demo import script
from app_server.demo.checks import Checks
from app_server.demo.client import Client, spawned
from app_server.demo.expectations import Expectations
from app_server.demo.person import Person
from app_server.demo.screen import Screen
from app_server.demo.turn import PlayedTurn, TurnRecorder
from app_server.demo.workspace import MODEL, SERVER, DemoWorkspace
from protocol.base import Json
from protocol.records import dataclass
from protocol.v1.methods import (
    ADD_CONVERSATION_LISTENER,
    INITIALIZE,
    INITIALIZED,
    NEW_CONVERSATION,
    RESUME_CONVERSATION,
    SEND_USER_MESSAGE,
    SEND_USER_TURN,
)

LEAVES_WITHIN = 2.0
"""Seconds after its stdin was closed; editors kill what takes longer."""


@dataclass(slots=True)
class Acts:
    """What the acts share."""

    workspace: DemoWorkspace
    screen: Screen
    person: Person
    checks: Checks
    expected: Expectations
    conversation: str = ""
    rollout: Path = Path()

    async def first_server(self) -> None:
        async with self._server("a server starts") as client:
            opened = await client.request(NEW_CONVERSATION.method, {"cwd": str(self.workspace.repository)})
            self.conversation, self.rollout = opened["conversationId"], Path(opened["rolloutPath"])
            self.screen.exchange(NEW_CONVERSATION.method, f"{self.conversation}, model {opened['model']}")
            await self._listen(client)
            self.screen.title("a turn that asks before it acts")
            self.expected.repair(await self._turn(client, script.REPAIR, approval="untrusted"))
            self.screen.title("a turn that may not ask, and a command that goes too far")
            self.expected.confinement(await self._turn(client, script.LEAVE_A_NOTE, approval="never"))
            await self._leave(client)

    def look_at_what_was_stored(self) -> None:
        self.screen.title("what was stored")
        try:
            lines = [
                json.loads(line)["type"] for line in self.rollout.read_text(encoding="utf-8").splitlines()
            ]
        except (OSError, ValueError, KeyError) as error:
            lines = []
            self.screen.warning(f"{self.rollout}: {error}")
        self.screen.note("rollout", str(self.rollout))
        counted = {kind: lines.count(kind) for kind in dict.fromkeys(lines)}
        self.screen.note("", ", ".join(f"{count} {kind}" for kind, count in counted.items()))
        self.checks.expect(
            "the rollout holds the conversation", lines[:1] == ["session_meta"] and len(lines) > 20, counted
        )

    async def second_server(self) -> None:
        async with self._server("a second server resumes it") as client:
            params = {"path": str(self.rollout), "overrides": {"cwd": str(self.workspace.repository)}}
            resumed = await client.request(RESUME_CONVERSATION.method, params)
            messages = resumed["initialMessages"]
            self.screen.exchange(
                RESUME_CONVERSATION.method, f"{resumed['conversationId']}, {len(messages)} earlier events"
            )
            said = [message["message"] for message in messages if message["type"] == "user_message"]
            self.checks.expect(
                "it is the same conversation, with what was said in it",
                resumed["conversationId"] == self.conversation
                and said == [script.REPAIR, script.LEAVE_A_NOTE],
                said,
            )
            await self._listen(client)
            self.expected.memory(await self._turn(client, script.CHECK_AGAIN))
            await self._leave(client)

    # --- with a server
    @asynccontextmanager
    async def _server(self, title: str) -> AsyncIterator[Client]:
        self.screen.title(title)
        self.expected.new_server()
        async with spawned(SERVER, self.workspace.environment, self.workspace.log) as client:
            info = {"name": "app-server-demo", "title": "Demo", "version": __version__}
            welcome = await client.request(INITIALIZE.method, {"clientInfo": info})
            await client.notify(INITIALIZED.method)
            self.screen.exchange(INITIALIZE.method, welcome["userAgent"])
            yield client

    async def _listen(self, client: Client) -> None:
        await client.request(ADD_CONVERSATION_LISTENER.method, {"conversationId": self.conversation})
        self.screen.exchange(ADD_CONVERSATION_LISTENER.method, "events follow")

    async def _turn(self, client: Client, text: str, approval: str | None = None) -> PlayedTurn:
        """With settings of its own, or with those of the configuration."""
        self.screen.user(text)
        params: Json = {
            "conversationId": self.conversation,
            "items": [{"type": "text", "data": {"text": text}}],
        }
        if approval is None:
            await client.request(SEND_USER_MESSAGE.method, params)
        else:
            await client.request(SEND_USER_TURN.method, params | self._settings(approval))
        seen = await TurnRecorder(client, self.screen, self.person, self.expected.untouched).record()
        self.expected.answer(seen)
        return seen

    def _settings(self, approval: str) -> Json:
        sandbox = {
            "mode": "workspace-write",
            "network_access": False,
            "exclude_tmpdir_env_var": True,
            "exclude_slash_tmp": True,
        }
        cwd = str(self.workspace.repository)
        return {
            "cwd": cwd,
            "approvalPolicy": approval,
            "sandboxPolicy": sandbox,
            "model": MODEL,
            "summary": "auto",
        }

    async def _leave(self, client: Client) -> None:
        began = anyio.current_time()
        status = await client.close()
        seconds = anyio.current_time() - began
        self.checks.expect(
            "the server left in good order when its stdin was closed",
            status == 0 and seconds <= LEAVES_WITHIN,
            f"exit status {status} after {seconds:.1f} s",
        )
