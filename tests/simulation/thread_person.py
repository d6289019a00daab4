"""Person who uses the thread API."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from anyio import Event
from anyio.abc import TaskGroup

from app_server_protocol.encoding import Json
from tests.simulation.conversation_person import EFFORTS, OLD_DECISIONS
from tests.simulation.going_back import GoingBack
from tests.simulation.people import Person
from tests.simulation.record import REPEATED, Forked, OwnCommand
from tests.simulation.sayings import marks_of, words
from tests.simulation.sim_commands import OWN_COMMAND, TOUCHED
from tests.support.client import MemoryWire

if TYPE_CHECKING:
    from tests.simulation.sim_world import SimWorld

CLIENT_TOOL = {
    "type": "function",
    "name": "look",
    "description": "looks at something",
    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}},
}
OLD_QUESTIONS = ("execCommandApproval", "applyPatchApproval")
DECISIONS = {
    "yes": "accept",
    "twice": "accept",
    "session": "acceptForSession",
    "no": "decline",
    "abort": "cancel",
}
WISHES: Sequence[Json] = (
    *({"effort": effort} for effort in EFFORTS),
    {"outputSchema": {"type": "object", "properties": {}, "required": [], "additionalProperties": False}},
)
"""Parameters that a message may come with."""

STORED = ("userMessage", "agentMessage", "reasoning", "commandExecution", "fileChange")
"""Types of items that are stored as such."""
STORED_ENDS = ("task_complete", "turn_aborted")
"""Types of stored lines that end a turn."""


class ThreadPerson(Person):
    """Person who uses the thread API."""

    api = "v2"

    def __init__(self, world: "SimWorld", wire: MemoryWire, tasks: TaskGroup, home: Path) -> None:
        super().__init__(world, wire, tasks, home)
        self._ends: dict[str, str] = {}
        self._completed: dict[str, list[str]] = {}
        """Ids of the completed items, by turn."""
        self._running: dict[str, str] = {}
        """Thread of each running turn, by turn."""
        self._latest: dict[str, str | None] = {}
        """Last turn of each thread that was requested beside another, by thread."""

    def told(self, message: Json) -> None:
        if message["method"] == "thread/tokenUsage/updated":
            self._read_reply(message["params"]["tokenUsage"]["last"]["reasoningOutputTokens"])
        elif message["method"] == "turn/started":
            self._running[message["params"]["turn"]["id"]] = message["params"]["threadId"]
        elif message["method"] == "turn/completed":
            turn = message["params"]["turn"]
            self._running.pop(turn["id"], None)
            self._ends[turn["id"]] = turn["status"]
            if self.home == self.world.home:
                self.record.turn_ends[message["params"]["threadId"], turn["id"]] = turn["status"]
            self._note(message["params"]["threadId"], *(f'"{end}".*"{turn["id"]}"' for end in STORED_ENDS))
        elif message["method"] == "item/completed":
            item = message["params"]["item"]
            id = item["id"]
            self._completed.setdefault(message["params"]["turnId"], []).append(id)
            if item["type"] in STORED and id[14:15] != "5":  # a UUID made of the id of a review is not stored
                engine_id = REPEATED.sub(r"\1", id)
                stored_as = (
                    f'"{name}":"{re.escape(each)}"' for name in ("item_id", "id") for each in (id, engine_id)
                )
                self._note(message["params"]["threadId"], *stored_as)
            thread, command = message["params"]["threadId"], item.get("command") or ""
            self.record.told_done.update(
                (thread, mark) for mark in TOUCHED.findall(command) if item["exitCode"] == 0
            )
            found = OWN_COMMAND.search(command)
            if found and item["exitCode"] is not None:
                own = OwnCommand(found[1], thread, self.world.model.begun)
                self.record.own_commands_done.append(own)

    def busy(self) -> bool:
        return bool(self._running)

    def running_in(self, thread: str) -> str | None:
        return next((turn for turn, of in self._running.items() if of == thread), None)

    def decision(self, question: Json, kind: str) -> Json:
        if question["method"] == "item/tool/call":
            seen = {
                "type": "inputText",
                "text": f"it looks like {question['params']['arguments'].get('text')}",
            }
            return {"success": kind not in ("no", "abort"), "contentItems": [seen]}
        decisions = OLD_DECISIONS if question["method"] in OLD_QUESTIONS else DECISIONS
        return {"decision": decisions.get(kind, decisions["abort"])}

    async def begin(self) -> None:
        capabilities = {"experimentalApi": True}
        await self.ask(
            "initialize", {"clientInfo": {"name": "sim", "version": "1"}, "capabilities": capabilities}
        )
        await self.write({"method": "initialized"})

    async def open(self) -> str:
        tools = {"dynamicTools": [CLIENT_TOOL]} if self.habits.client_tools else {}
        answer = await self.ask("thread/start", {"cwd": self.world.workspace, **tools})
        id: str = answer["result"]["thread"]["id"]
        if self.habits.both_apis:
            await self.ask("addConversationListener", {"conversationId": id, "experimentalRawEvents": False})
        return id

    async def say(self, thread: str, text: str) -> str | None:
        wishes = self.draws.pick("wish", WISHES) if self.draws.chance("wishes", self.habits.wishes) else {}
        answer = await self.ask("turn/start", {"threadId": thread, "input": words(text), **wishes})
        return answer["result"]["turn"]["id"] if "result" in answer else None

    async def ended(self, thread: str, turn: str) -> str:
        await self.until(lambda: turn in self._ends)
        return self._ends[turn]

    async def _shown(self, method: str, params: Json) -> Json:
        """Request a thread with its turns, and check that ended turns have the status that was reported."""
        thread, record = params["threadId"], self.record
        told = {turn: status for (of, turn), status in record.turn_ends.items() if of == thread}
        answer = await self.ask(method, params)
        if "result" in answer and self.home == self.world.home and not self.world.loses_lines:
            shown = {turn["id"]: turn["status"] for turn in answer["result"]["thread"]["turns"]}
            for turn, status in told.items():
                if shown.get(turn) != status and thread not in record.reverted:
                    self.wrong.append(f"{method} shows {turn} as {shown.get(turn)}, which ended as {status}")
        return answer

    async def history(self, thread: str) -> list[str] | None:
        opened = await self._shown("thread/resume", {"threadId": thread})
        if "result" not in opened:
            return None
        return marks_of(opened["result"]["thread"])

    async def do(self, thread: str, deed: str, turn: str | None) -> None:
        match deed:
            case "interrupt":
                ended = self.draws.pick("interrupted turn", (turn, self._latest.get(thread), ""))
                await self.ask("turn/interrupt", {"threadId": thread, "turnId": ended or ""})
            case "second turn" if self.habits.both_apis and self.draws.chance("in old words", 0.5):
                # The client does not learn which turn these join: the rules only check that the model gets them in
                # order.
                items = [{"type": "text", "data": {"text": f"{self.record.new_word()} please"}}]
                await self.ask("sendUserMessage", {"conversationId": thread, "items": items})
            case "steer" | "second turn":
                await self._steer(thread, deed, turn)
            case "settings":
                policy = self.draws.pick("new policy", ("never", "untrusted", "on-request"))
                self.record.loosened |= policy not in ("untrusted", self.habits.approval_policy)
                await self.ask("thread/settings/update", {"threadId": thread, "approvalPolicy": policy})
            case "resume":
                await self.history(thread)
            case "go back":
                await GoingBack(self, thread).go()
            case "read":
                await self._shown("thread/read", {"threadId": thread, "includeTurns": True})
            case "fork":
                before = self.world.model.begun
                answer = await self._shown("thread/fork", {"threadId": thread})
                if "result" in answer:
                    child = answer["result"]["thread"]["id"]
                    self.record.threads.append(child)
                    self.record.forks.append(Forked(child, thread, before, self.world.model.begun))
                    if thread in self.record.reverted:
                        self.record.reverted.add(child)
            case "archive":
                answer = await self.ask("thread/archive", {"threadId": thread})
                if "result" in answer:
                    self.record.gone.add(thread)
            case "compact":
                await self.ask("thread/compact/start", {"threadId": thread})
            case "review":
                target = {"type": "custom", "instructions": "look"}
                await self.ask("review/start", {"threadId": thread, "target": target})
            case "shell":
                word = self.record.new_word()
                self.record.own_commands.add(word)
                await self.ask("thread/shellCommand", {"threadId": thread, "command": f"echo {word}"})
            case "goal":
                budget = self.draws.pick("budget of a goal", (None, 40))
                params = {"threadId": thread, "objective": "Find all errors.", "tokenBudget": budget}
                await self.ask("thread/goal/set", params)
            case "no goal":
                await self.ask("thread/goal/clear", {"threadId": thread})
            case "name":
                await self.ask("thread/name/set", {"threadId": thread, "name": self.record.new_word()})
            case "rollback" if turn is not None:
                self.record.reverted.add(thread)
                await self.ask("thread/revert", {"threadId": thread, "beforeTurnId": turn})

    async def _steer(self, thread: str, deed: str, turn: str | None) -> None:
        word = self.record.new_word()
        self.record.words[word] = "gone"
        if deed == "steer":
            params = {"threadId": thread, "expectedTurnId": turn or "", "input": words(f"{word} please")}
            answer = await self.ask("turn/steer", params)
            joined = turn
        else:
            answer = await self.ask("turn/start", {"threadId": thread, "input": words(f"{word} please")})
            joined = answer["result"]["turn"]["id"] if "result" in answer else None
            self._latest[thread] = joined
        if "result" not in answer or joined is None:
            self.record.words[word] = "refused"
            return
        self.record.words[word] = "accepted"
        self.tasks.start_soon(self._note_end, thread, joined, word, Event(), name="a steered turn's end")
