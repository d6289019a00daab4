"""`app-server demo`: a conversation with the real server in a subprocess, in the role of an editor.

1. A server starts, a conversation begins.
2. A turn: streamed text, a command that only reads, a command that needs approval, a patch that needs approval.
3. A turn in which the user is not asked and the sandbox stops a command that writes outside of the workspace.
4. The server ends; the stored conversation is checked.
5. A second server resumes the conversation and runs a turn.

Each step is checked. The demo needs no key and no network, and changes no files of the user.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from msgspec import Struct

from app_server import __version__
from app_server.cli.demo import demo_script as script
from app_server.cli.demo.demo_script import Script
from app_server.cli.demo.demo_turn import Expectations, PlayedTurn, TurnRecorder
from app_server.cli.demo.screen import Checks, DemoStopped, Person, Screen
from app_server.cli.demo.scripted_model import ScriptedModel
from app_server.cli.demo.workspace import DemoSetupError, DemoWorkspace, temporary_workspace
from app_server.client.answering import ApprovalAnswer
from app_server.client.app_server import AppServer
from app_server.client.approval_requests import ApprovalRequest
from app_server.client.command_line import INTERRUPTED, until_signal
from app_server.client.failures import AppServerError
from app_server.client.link import OWN_COMMAND
from app_server.client.options import TurnOptions
from app_server.client.thread_handle import ThreadHandle
from app_server_protocol.v2.item_parts import TextUserInput
from app_server_protocol.v2.items import UserMessageThreadItem
from app_server_protocol.v2.server import INITIALIZE, ClientInfo
from app_server_protocol.v2.settings import WorkspaceWriteSandboxPolicy
from app_server_protocol.v2.thread import Thread
from app_server_protocol.v2.thread_open import THREAD_RESUME, THREAD_START

LEAVES_WITHIN = 2.0
"""Maximum time for a server to end after its stdin was closed, in seconds; editors kill a server that takes longer."""


CONFINED = WorkspaceWriteSandboxPolicy(exclude_tmpdir_env_var=True, exclude_slash_tmp=True)


class Acts(Struct, eq=False):
    """State that the acts of the demo share."""

    workspace: DemoWorkspace
    screen: Screen
    person: Person
    checks: Checks
    expected: Expectations
    thread_id: str = ""
    rollout: Path = Path()
    _recorder: TurnRecorder | None = None

    async def first_server(self) -> None:
        async with self._server("a server starts") as server:
            thread = await server.start_thread(cwd=self.workspace.repository)
            self.thread_id, self.rollout = thread.id, Path(thread.opened.thread.path or "")
            self.screen.note("editor", f"{THREAD_START.method} → {thread.id}, model {thread.opened.model}")
            self.screen.title("a turn that asks before it acts")
            asks: TurnOptions = {"approval_policy": "untrusted", "sandbox_policy": CONFINED}
            self.expected.repair(await self._turn(thread, script.REPAIR, asks))
            self.screen.title("a turn that may not ask, and a command that goes too far")
            silent: TurnOptions = {"approval_policy": "never", "sandbox_policy": CONFINED}
            self.expected.confinement(await self._turn(thread, script.LEAVE_A_NOTE, silent))

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
        async with self._server("a second server resumes it") as server:
            thread = await server.resume_thread(self.thread_id, turns=True)
            stored = thread.opened.thread
            self.screen.note(
                "editor", f"{THREAD_RESUME.method} → {thread.id}, {len(stored.turns)} earlier turns"
            )
            said = words_of_the_user(stored)
            self.checks.expect(
                "it is the same thread, with what was said in it",
                thread.id == self.thread_id and said == [script.REPAIR, script.LEAVE_A_NOTE],
                said,
            )
            asks: TurnOptions = {"approval_policy": "untrusted"}
            self.expected.memory(await self._turn(thread, script.CHECK_AGAIN, asks))

    # --- with a server
    @asynccontextmanager
    async def _server(self, title: str) -> AsyncIterator[AppServer]:
        """Run a server until the end of the block, and check its end."""
        self.screen.title(title)
        statuses: list[int] = []
        with self.workspace.log.open("a", encoding="utf-8") as log:
            async with AppServer.spawn(
                OWN_COMMAND,
                environment=self.workspace.environment,
                on_stderr=lambda line: print(line, file=log),
                on_exit=statuses.append,
                on_approval=self._decide,
                client=ClientInfo(name="app-server-demo", title="Demo", version=__version__),
            ) as server:
                self.screen.note("editor", f"{INITIALIZE.method} → {server.info.user_agent}")
                yield server
                began = anyio.current_time()
        seconds = anyio.current_time() - began
        self.checks.expect(
            "the server left in good order when its stdin was closed",
            statuses == [0] and seconds <= LEAVES_WITHIN,
            f"exit status {statuses} after {seconds:.1f} s",
        )

    async def _turn(self, thread: ThreadHandle, text: str, options: TurnOptions) -> PlayedTurn:
        self.screen.user(text)
        self._recorder = TurnRecorder(self.screen, self.person, self.expected.untouched)
        seen = await self._recorder.record(thread.stream(text, **options))
        self.expected.answer(seen)
        return seen

    async def _decide(self, request: ApprovalRequest) -> ApprovalAnswer:
        return None if self._recorder is None else await self._recorder.decide(request)


def words_of_the_user(thread: Thread) -> list[str]:
    return [
        part.text
        for turn in thread.turns
        for item in turn.items
        if isinstance(item, UserMessageThreadItem)
        for part in item.content
        if isinstance(part, TextUserInput)
    ]


def run_demo(*, yes: bool) -> int:
    """Play the demo. Return 0 only if all checks passed."""
    screen = Screen(sys.stdout, os.environ)
    checks = Checks(screen)
    person = Person(screen, sys.stdin, yes)
    checks.unasked = not person.is_there
    if not anyio.run(until_signal, lambda: _play(screen, checks, person)):
        screen.line("interrupted")
        return INTERRUPTED
    screen.title("the end")
    screen.line(_summary(checks))
    return checks.status


async def _play(screen: Screen, checks: Checks, person: Person) -> bool:
    """Play all acts. Return True at their end."""
    try:
        async with temporary_workspace(os.environ) as workspace:
            script = Script(workspace.outside)
            model = ScriptedModel(script)
            async with model.serving() as url:
                workspace.configure(url)
                expected = Expectations(workspace, model, script, screen, checks)
                await _acts(Acts(workspace, screen, person, checks, expected))
    except DemoSetupError as error:
        checks.stopped(str(error))
    return True


async def _acts(acts: Acts) -> None:
    try:
        await acts.first_server()
        acts.look_at_what_was_stored()
        await acts.second_server()
    except (AppServerError, DemoStopped) as error:
        acts.checks.stopped(str(error.__cause__ or error))
        for line in acts.workspace.last_logged():
            acts.screen.note("log", line)


def _summary(checks: Checks) -> str:
    if checks.failed:
        return f"{checks.failed} of {checks.failed + checks.passed} checks failed."
    if checks.denied:
        return (
            f"{checks.passed} checks passed, but not everything was shown: {checks.denied} steps were "
            "denied. `app-server demo --yes` approves them."
        )
    return f"{checks.passed} checks passed. The temporary folder is gone, with everything in it."
