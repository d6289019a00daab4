"""Person who uses the Agent Client Protocol."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from anyio.abc import TaskGroup

from app_server_protocol.encoding import Json
from tests.simulation.people import Person
from tests.simulation.record import TakenBack
from tests.simulation.sayings import SAYINGS, marks
from tests.support.client import MemoryWire

if TYPE_CHECKING:
    from tests.simulation.sim_world import SimWorld


LEFT = re.compile(r"left the conversation.{0,300}?> (w\d+)\b")
"""The first word that has left a conversation, in the text that says so."""
SCOPES = frozenset(("both", "files", "conversation"))
"""Options of the question what goes back."""


class EditorPerson(Person):
    """Person who uses the Agent Client Protocol."""

    api = "acp"

    def __init__(self, world: "SimWorld", wire: MemoryWire, tasks: TaskGroup, home: Path) -> None:
        super().__init__(world, wire, tasks, home)
        self._prompts: list[int] = []

    def _message(self, message: Json) -> Json:
        return {"jsonrpc": "2.0", **message}

    def told(self, message: Json) -> None:
        pass

    def busy(self) -> bool:
        return any(id not in self._answers for id in self._prompts)

    def decision(self, question: Json, kind: str) -> Json:
        if question["method"] != "session/request_permission":
            return None
        options = [option["optionId"] for option in question["params"]["options"]]
        if SCOPES & {*options}:
            agrees = self.draws.chance("agrees to go back", 0.85)
            chosen = self._scope(question, options) if agrees else "decline"
            return {"outcome": {"outcome": "selected", "optionId": chosen}}
        wanted = {"yes": "allow_once", "twice": "allow_once", "session": "allow_always", "no": "reject_once"}
        for option in question["params"]["options"]:
            if option["kind"] == wanted.get(kind):
                return {"outcome": {"outcome": "selected", "optionId": option["optionId"]}}
        return {"outcome": {"outcome": "cancelled"}}

    async def begin(self) -> None:
        await self.ask(
            "initialize", {"protocolVersion": 1, "clientCapabilities": {"elicitation": {"form": {}}}}
        )

    async def open(self) -> str:
        answer = await self.ask("session/new", {"cwd": self.world.workspace, "mcpServers": []})
        id: str = answer["result"]["sessionId"]
        return id

    async def say(self, thread: str, text: str) -> str | None:
        self._next_id += 1
        id = self._next_id
        self._prompts.append(id)
        prompt = [{"type": "text", "text": text}]
        params = {"sessionId": thread, "prompt": prompt}
        await self.write(self._message({"id": id, "method": "session/prompt", "params": params}))
        return str(id)

    async def ended(self, thread: str, turn: str) -> str:
        await self.until(lambda: int(turn) in self._answers)
        answer = self._answers[int(turn)]
        if "error" in answer:
            return "failed"
        reason = answer["result"]["stopReason"]
        return "completed" if reason == "end_turn" else str(reason)

    async def history(self, thread: str) -> list[str] | None:
        params = {"sessionId": thread, "cwd": self.world.workspace, "mcpServers": []}
        begin = len(self.log)
        answer = await self.ask("session/load", params)
        if "result" not in answer:
            return None
        shown = [m["params"] for m in self.received_since(begin) if m.get("method") == "session/update"]
        updates = [each["update"] for each in shown if each["sessionId"] == thread]
        return marks(each["content"].get("text") for each in updates if each["sessionUpdate"] in SAYINGS)

    async def do(self, thread: str, deed: str, turn: str | None) -> None:
        match deed:
            case "interrupt":
                params = {"sessionId": thread}
                await self.write(self._message({"method": "session/cancel", "params": params}))
            case "resume":
                await self.history(thread)
            case "read":
                await self.ask("session/list", {})
            case "go back":
                await self._go_back(thread)

    async def _go_back(self, thread: str) -> None:
        commands = ("/undo", "/undo", "/redo", *("/rewind 1",) * 4, "/rewind 2", "/rewind 3")
        command = self.draws.pick("command of going back", commands)
        files = self.record.files
        files.uncertain_restores += 1
        if command.startswith("/rewind") and self.draws.chance("lists messages first", 0.3):
            listed = await self.say(thread, "/rewind")
            if listed is not None:
                await self.ended(thread, listed)
        begin, id = len(self.log), await self.say(thread, command)
        if id is None:
            return
        await self.ended(thread, id)
        files.uncertain_restores += 1
        for word in LEFT.findall(json.dumps(self.received_since(begin))):
            self.record.taken_back.append(TakenBack(thread, word, self.world.model.begun))

    def _scope(self, question: Json, options: Sequence[str]) -> str:
        """Choose what goes back."""
        scope = self.draws.pick("scope of a rewind", [each for each in options if each in SCOPES])
        if scope != "files":
            self.record.reverted.add(question["params"]["sessionId"])
            self.world.model.note("a session went back")
        return scope
