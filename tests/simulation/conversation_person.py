"""Person who uses the conversation API."""

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

from anyio import Event
from anyio.abc import TaskGroup

from app_server_protocol.encoding import Json
from tests.simulation.people import Person
from tests.simulation.sayings import SAYINGS, marks
from tests.support.client import MemoryWire

if TYPE_CHECKING:
    from tests.simulation.sim_world import SimWorld

OLD_DECISIONS = {
    "yes": "approved",
    "twice": "approved",
    "session": "approved_for_session",
    "no": "denied",
    "abort": "abort",
}
EFFORTS = ("low", "high")


class ConversationPerson(Person):
    """Person who uses the conversation API."""

    api = "v1"

    def __init__(self, world: "SimWorld", wire: MemoryWire, tasks: TaskGroup, home: Path) -> None:
        super().__init__(world, wire, tasks, home)
        self._running: set[tuple[str, str]] = set()
        """Running operations, as pairs of a conversation and an operation id."""
        self._ended: dict[str, list[str]] = {}
        self._said: dict[str, str] = {}
        """Conversation of each word that was said."""
        self._troubled: set[str] = set()
        """Conversations with a failed or interrupted turn. The server does not tell which messages that turn contained.
        """

    def told(self, message: Json) -> None:
        if not message["method"].startswith("codex/event/"):
            return
        params = message["params"]
        kind = params["msg"]["type"]
        if kind == "token_count" and params["msg"].get("info"):
            self._read_reply(params["msg"]["info"]["last_token_usage"]["reasoning_output_tokens"])
        if kind in ("user_message", "agent_message"):
            self._note(
                params["conversationId"], re.escape(json.dumps(params["msg"]["message"].split()[0])[:-1])
            )
        if kind in ("task_complete", "turn_aborted"):
            status = "completed" if kind == "task_complete" else "interrupted"
            self._ended.setdefault(params["conversationId"], []).append(status)
            self._running.discard((params["conversationId"], params["id"]))
        elif kind == "task_started":
            self._running.add((params["conversationId"], params["id"]))
        if kind in ("error", "turn_aborted"):
            self._troubled.add(params["conversationId"])

    def decision(self, question: Json, kind: str) -> Json:
        return {"decision": OLD_DECISIONS.get(kind, "abort")}

    async def begin(self) -> None:
        await self.ask("initialize", {"clientInfo": {"name": "sim", "version": "1"}})
        await self.write({"method": "initialized"})

    async def open(self) -> str:
        answer = await self.ask("newConversation", {"cwd": self.world.workspace})
        id: str = answer["result"]["conversationId"]
        await self._listen(id)
        return id

    async def _listen(self, id: str) -> None:
        await self.ask("addConversationListener", {"conversationId": id, "experimentalRawEvents": False})

    async def say(self, thread: str, text: str) -> str | None:
        self.record.said_in_old_words.add(text.split()[0])
        items = [{"type": "text", "data": {"text": text}}]
        before = len(self._ended.get(thread, ()))
        self._said[text.split()[0]] = thread
        params = {"conversationId": thread, "items": items}
        if self.draws.chance("wishes", self.habits.wishes):
            answer = await self.ask("sendUserTurn", params | self._settings())
        else:
            answer = await self.ask("sendUserMessage", params)
        return str(before) if "result" in answer else None

    def _settings(self) -> Json:
        return {
            "cwd": self.world.workspace,
            "approvalPolicy": self.habits.approval_policy,
            "sandboxPolicy": {"type": self.habits.sandbox_mode},
            "model": "scripted",
            "effort": self.draws.pick("effort", EFFORTS),
            "summary": "auto",
        }

    async def ended(self, thread: str, turn: str) -> str:
        """Wait for the next end of a turn. A message joins the turn that runs, so that end may belong to an earlier
        turn; `settle` finds out at last.
        """
        at = int(turn)
        await self.until(lambda: len(self._ended.get(thread, ())) > at)
        return "ended"

    def settle(self) -> None:
        for word, thread in self._said.items():
            if self.record.words.get(word) == "ended" and thread not in self._troubled | self.record.gone:
                # A client that has left may have received the end of the turn before, and no begin.
                began = not self.left_early or self._was_shown(word)
                self.record.words[word] = "completed" if began else "gone"

    def _was_shown(self, word: str) -> bool:
        of_words = (m for m in self.received() if m.get("method") == "codex/event/user_message")
        return any(word in marks([each["params"]["msg"]["message"]]) for each in of_words)

    def busy(self) -> bool:
        return bool(self._running)

    async def history(self, thread: str) -> list[str] | None:
        answer = await self.ask("resumeConversation", {"conversationId": thread})
        if "result" not in answer:
            return None
        await self._listen(thread)
        events = answer["result"]["initialMessages"] or ()
        return marks(each.get("message") for each in events if each["type"] in SAYINGS)

    async def do(self, thread: str, deed: str, turn: str | None) -> None:
        match deed:
            case "interrupt":
                await self.ask("interruptConversation", {"conversationId": thread})
            case "steer" | "second turn":
                word = self.record.new_word()
                joined = await self._says(thread, word)
                if joined is None:
                    return
                self.tasks.start_soon(self._note_end, thread, joined, word, Event(), name="a joined turn")
            case "settings":
                self.record.loosened = True
                op: Json = {"type": "override_turn_context", "approval_policy": "on-request"}
                await self.ask("submit", {"conversationId": thread, "op": op})
            case "read":
                await self.ask("listConversations", {"pageSize": 5})
            case "compact" | "review" | "rollback" | "go back" | "shell":
                self.record.files.uncertain_restores += deed in ("rollback", "go back")
                op = {
                    "compact": {"type": "compact"},
                    "review": {
                        "type": "review",
                        "review_request": {"prompt": "look", "user_facing_hint": "x"},
                    },
                    "rollback": {"type": "undo"},
                    "go back": {"type": "undo"},
                    "shell": {"type": "run_user_shell_command", "command": "echo hi"},
                }[deed]
                await self.ask("submit", {"conversationId": thread, "op": op})
            case "archive":
                await self._archive(thread)

    async def _archive(self, thread: str) -> None:
        summary = await self.ask("getConversationSummary", {"conversationId": thread})
        if "result" not in summary:
            return
        path = summary["result"]["summary"]["path"]
        answer = await self.ask("archiveConversation", {"conversationId": thread, "rolloutPath": path})
        if "result" in answer:
            self.record.gone.add(thread)
