"""The people of a simulated world: one class for each API. They say things, do other things beside, answer questions
early, late, wrong or never, and leave.

Every text that a person says has a word of its own, `w17`, by which the oracle finds it again.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import anyio
from anyio.abc import TaskGroup

from app_server.transport.framing import TransportClosed
from protocol.structs import Json
from tests.simulation.habits import TURNS_OWN
from tests.simulation.moments import sign_of
from tests.simulation.rounds import REPEATED, Rounds
from tests.simulation.sim_commands import OWN_COMMAND, TOUCHED
from tests.simulation.sim_model import SimModel
from tests.simulation.stored import rollout_of
from tests.support.client import Logged, MemoryWire

MARK = re.compile(r"\bm\d+\b")
SAYING = re.compile(r"[ws]\d+\b")

THREAD_NAMES = ("threadId", "conversationId", "sessionId")


CLIENT_TOOL = {
    "type": "function",
    "name": "look",
    "description": "looks at something",
    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}},
}

OLD_QUESTIONS = ("execCommandApproval", "applyPatchApproval")
OLD_DECISIONS = {
    "yes": "approved",
    "twice": "approved",
    "session": "approved_for_session",
    "no": "denied",
    "abort": "abort",
}
DECISIONS = {
    "yes": "accept",
    "twice": "accept",
    "session": "acceptForSession",
    "no": "decline",
    "abort": "cancel",
}


MOST_REFLEXES = 6
"""Some of what people do by reflex shows them the same sign again."""

WITHDRAWALS = ("serverRequest/resolved", "$/cancel_request")
"""How a client is told that a question is over."""

YES: Json = {
    "decision": "accept",
    "outcome": {"outcome": "selected", "optionId": "approved"},
}
ON_THE_WAY = 30
"""So many messages may be under way while somebody answers what it is about to be asked."""


class Gone(Exception):
    """The connection has ended before an answer came."""


@dataclass(frozen=True, slots=True)
class OwnCommand:
    """A command that a person typed and that has ended."""

    word: str
    thread: str
    after_requests: int
    """So many requests to the model were begun then."""


@dataclass(frozen=True, slots=True)
class Forked:
    """A thread that was copied."""

    child: str
    parent: str
    after_requests: int
    """So many were begun when the copy was asked for."""
    before_requests: int
    """And so many when it was there."""


@dataclass(frozen=True, slots=True)
class ReadReply:
    """A reply of the model that was read to its end."""

    number: int
    """Of all replies, from 1 on."""
    after_requests: int
    """So many requests to the model were begun when a person was told."""


@dataclass(slots=True)
class Record:
    """What the people of a world did and were told, for the oracle."""

    words: dict[str, str] = field(default_factory=dict)
    """The words that were accepted, and how their turn ended: `completed`, another word, or nothing yet."""
    requests_at_end: dict[str, int] = field(default_factory=dict)
    """How many requests the model had got when a turn had ended, by the words."""
    yes: Counter[str] = field(default_factory=Counter)
    """How often the marks of what was asked about were allowed."""
    rounds: Rounds = field(default_factory=Rounds)
    session_yes: set[str] = field(default_factory=set)
    """What was allowed for the rest of a session."""
    own_commands: set[str] = field(default_factory=set)
    own_commands_done: list["OwnCommand"] = field(default_factory=list)
    replies: dict[int, "ReadReply"] = field(default_factory=dict)
    """By number, as they were told of first."""
    told_done: set[tuple[str, str]] = field(default_factory=set)
    """Threads and marks of commands that were told to have run."""
    forks: list["Forked"] = field(default_factory=list)
    reverted: set[str] = field(default_factory=set)
    """Threads that were taken back to an earlier turn."""
    said_in_old_words: set[str] = field(default_factory=set)
    """Words over the conversation API: those that join a turn are not shown."""
    loosened: bool = False
    """A person changed the policy or the sandbox."""
    turn_ends: dict[tuple[str, str], str] = field(default_factory=dict)
    """The status with which each turn of a thread was told to have ended."""
    threads: list[str] = field(default_factory=list)
    gone: set[str] = field(default_factory=set)
    """Threads that were archived or deleted."""
    count: int = 0

    def new_word(self) -> str:
        self.count += 1
        return f"w{self.count}"


@dataclass(frozen=True, slots=True)
class Shown:
    """Something that a client was shown, and how much of its thread was stored then."""

    thread: str
    stored_as: tuple[str, ...]
    """Expressions for what a stored line of it has; one of them is enough."""
    size: int


class World(Protocol):
    """What people know of the world."""

    model: SimModel
    record: Record
    calm: anyio.Event
    people: "list[Person]"

    @property
    def workspace(self) -> str: ...

    @property
    def home(self) -> Path: ...

    @property
    def loses_lines(self) -> bool: ...

    def new_name(self, api: str) -> str:
        """Return the name of a client that comes."""
        ...

    def shown(self, sign: str) -> None:
        """Take note of what a person was shown."""
        ...

    def come_back(self) -> None:
        """Let who left connect again, where that is a habit."""
        ...


class Person:
    """A client with its connection. `tests.support.invariants` reads its log."""

    api: str

    def __init__(self, world: World, wire: MemoryWire, tasks: TaskGroup, home: Path) -> None:
        self.world, self.wire, self.tasks, self.home = world, wire, tasks, home
        self.name = world.new_name(self.api)
        self.draws, self.habits = world.model.draws, world.model.habits
        self.record = world.record
        self.answers = self.habits.answers
        self.log: list[Logged] = []
        self.garbage: list[bytes] = []
        self.left_early = self.leaving = self.closed = False
        self.left_at: float | None = None
        """In virtual seconds."""
        self.dead = False
        """The server was killed: nothing that comes now was sent."""
        self.server = self.name
        """Whose client it is: the name of who is asked beside it, where a server has several clients."""
        self.followed: set[str] = set()
        """Threads of others that it joined."""
        self.withdrawn: set[Json] = set()
        """The ids of questions that it was told are over."""
        self._guesses: dict[Json, int] = {}
        """Ids that it answered without having been asked, and how long its log was then."""
        self._next_id = 0
        self._answers: dict[int, Json] = {}
        self._changed = anyio.Event()
        self._writing = anyio.Lock()
        self.asking = 0
        """Requests that are not answered."""
        self.open_questions: list[Json] = []
        """Questions that are not answered."""
        self.shown: list[Shown] = []
        self.wrong: list[str] = []
        """What this person noticed that cannot be."""
        self._paths: dict[str, Path | None] = {}
        self._signs: Counter[str] = Counter()
        self._reflexes = 0

    # --- the wire
    async def read(self) -> None:
        async for line in self.wire.lines():
            self.hear(line)
        self.closed = True
        self.wake()

    def hear(self, line: bytes) -> None:
        """Take a line of the server."""
        if self.dead:
            return
        try:
            message = json.loads(line)
        except ValueError:
            self.garbage.append(line)
            return
        self.note_message(message, sent=False)
        if "method" in message and "id" in message:
            self.record.rounds.asked(self.server, self.name, message)
            self._allow_guess(message)
            self.asked(message)
        elif "method" in message:
            if message["method"] in WITHDRAWALS:
                self._is_over(message["params"]["requestId"])
            self.told(message)
        else:
            self._answers[message.get("id")] = message
        self.wake()
        if (sign := sign_of(message)) is not None:
            self.notice(sign)
            if sign == self.habits.reflex and self._reflexes < MOST_REFLEXES:
                self._react(message["params"])

    def note_message(self, message: Json, *, sent: bool) -> None:
        self.log.append(Logged(sent, message))
        self.world.model.journal.message(self.name, message, sent=sent)

    def notice(self, sign: str) -> None:
        """Do what is to be done at this sign."""
        self._signs[sign] += 1
        self.wake()
        self.world.shown(sign)

    def _react(self, params: Json) -> None:
        """Do something else while that goes on which is told of."""
        thread = next((params[name] for name in THREAD_NAMES if name in params), None)
        if thread is not None and self.draws.chance("a reflex", 0.7):
            self._reflexes += 1
            deed = self.draws.pick("deed of a reflex", TURNS_OWN)
            self.tasks.start_soon(self.try_deed, thread, deed, params.get("turnId"), name="a reflex")

    def wake(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    async def write(self, message: Json) -> None:
        async with self._writing:  # the log has the order of the wire
            if self.closed or self.leaving or self.dead:
                raise Gone
            self.note_message(message, sent=True)
            try:
                with anyio.CancelScope(shield=True):  # what is in the log was sent
                    await self.wire.write(json.dumps(message).encode() + b"\n")
            except TransportClosed:
                raise Gone from None

    async def ask(self, method: str, params: Json) -> Json:
        """Return the whole answer. Raises Gone."""
        self._next_id += 1
        id = self._next_id
        self.asking += 1
        try:
            await self.write(self._message({"id": id, "method": method, "params": params}))
            await self.until(lambda: id in self._answers)
        finally:
            self.asking -= 1
        return self._answers[id]

    def _message(self, message: Json) -> Json:
        return message

    def received(self) -> list[Json]:
        return self.received_since(0)

    def received_since(self, begin: int) -> list[Json]:
        return [entry.message for entry in self.log[begin:] if not entry.sent]

    async def until(self, condition: "Condition") -> None:
        """Wait until a message makes the condition true. Raises Gone."""
        while not condition():
            if self.closed:
                raise Gone
            await self._changed.wait()

    async def leave(self) -> None:
        """Close the connection and wait for the server's end of it."""
        self.leaving = True
        self.left_at = anyio.current_time() if self.left_at is None else self.left_at
        self.world.model.note("somebody left")
        await self.wire.close()
        await self.until_closed()

    async def until_closed(self) -> None:
        while not self.closed:
            await self._changed.wait()

    def _note(self, thread: str, *stored_as: str) -> None:
        """Note how long the file of a thread is when the client is shown something that is to be stored."""
        if self._paths.get(thread) is None:
            self._paths[thread] = rollout_of(self.home, thread)
        path = self._paths[thread]
        with suppress(OSError):
            self.shown.append(Shown(thread, stored_as, 0 if path is None else path.stat().st_size))

    def _read_reply(self, number: int) -> None:
        """Note that the client was told what a reply has cost."""
        if number and self.home == self.world.home:
            self.record.replies.setdefault(number, ReadReply(number, self.world.model.begun))

    # --- questions
    def _shown_marks(self, question: Json) -> set[str]:
        """Return the marks of what is asked about, also where only the item or call before shows it."""
        params = question["params"]
        id = params.get("itemId") or params.get("callId") or params.get("toolCall", {}).get("toolCallId")
        shown = [message for message in self.received() if id is not None and _is_begin(message, id)]
        return set(MARK.findall(json.dumps([question, *shown[-1:]])))

    def asked(self, question: Json) -> None:
        """Begin to answer a question."""
        self.open_questions.append(question)
        self.tasks.start_soon(self._answer, question, name="an answer")

    def _is_over(self, id: Json) -> None:
        """Take note that a question is over, unless it is for who answered it with nothing."""
        if id not in self.withdrawn:
            self.withdrawn.add(id)
            if any(each["id"] == id for each in self.open_questions):
                self.record.rounds.is_over(self.name, id)

    def _allow_guess(self, question: Json) -> None:
        """Take an answer to this question for a yes that was on its way as it was asked."""
        if len(self.log) - self._guesses.pop(question["id"], -ON_THE_WAY) < ON_THE_WAY:
            self.record.yes.update(self._shown_marks(question))

    async def guess(self) -> None:
        """Answer yes under the id of a question that others were asked, or that is over, or under any."""
        mine = [each["id"] for each in self.open_questions]
        of_others = [each["id"] for person in self.world.people for each in person.open_questions]
        ids = [each for each in (*of_others, *sorted(self.withdrawn), *range(4)) if each not in mine]
        id = self.draws.pick("guessed id", ids)
        self._guesses[id] = len(self.log)
        with suppress(Gone):
            await self.write(self._message({"id": id, "result": YES}))

    async def decide(self, question: Json) -> str:
        """Think about a question; return the kind of its answer."""
        marks = self._shown_marks(question)
        kind = self.draws.pick("answer", self.answers)
        if len(self.open_questions) > 1:
            self.world.model.note("two questions open at once")
        try:
            with anyio.move_on_after(self.draws.seconds("thinking", *self.habits.thinking)):
                await self.world.calm.wait()
            if kind == "never":
                await self.world.calm.wait()
                kind = "no"
            if kind == "interrupt":
                params = question["params"]
                thread = next(params[name] for name in THREAD_NAMES if name in params)
                await self.try_deed(thread, "interrupt", params.get("turnId"))
                await self._pause("late answer", self.habits.thinking)
                kind = "yes"
        finally:
            self.open_questions.remove(question)
        if kind not in ("malformed", "error"):
            self.record.rounds.answered(self.name, question["id"])
        too_late = question["id"] in self.withdrawn
        if kind in ("yes", "session", "twice") and not too_late:
            first = self.record.rounds.says_yes(self.name, question["id"])
            self.record.yes.update(marks if first else ())
            self.record.session_yes |= marks if kind == "session" else set()
            if not self.busy():
                self.world.model.note("a yes after its turn")
        return kind

    async def _answer(self, question: Json) -> None:
        kind = await self.decide(question)
        answer: Json = {"id": question["id"]}
        if kind == "error":
            answer["error"] = {"code": -32000, "message": "no"}
        elif kind == "malformed":
            answer["result"] = {"decision": 5}
        elif "licitation" in question["method"]:
            action = {"no": "decline", "abort": "cancel"}.get(kind, "accept")
            answer["result"] = {"action": action, "content": {"project": "mine"}}
        else:
            answer["result"] = self.decision(question, kind)
        with suppress(Gone):
            await self.write(self._message(answer))
            if kind == "twice":
                await self.write(self._message(answer))

    # --- what each API says in its own way
    def told(self, message: Json) -> None:
        """Take note of a notification."""
        raise NotImplementedError

    def decision(self, question: Json, kind: str) -> Json:
        """Return the result of a question: `yes`, `no`, `session`, `abort` or `twice`, which is a yes."""
        raise NotImplementedError

    def busy(self) -> bool:
        """Tell whether a turn runs that the client was told of."""
        raise NotImplementedError

    def running_in(self, thread: str) -> str | None:
        """Return the turn that runs in a thread, where the API gives turns names."""

    async def follow(self, thread: str) -> None:
        """Join a thread that others may have opened."""
        if await self.history(thread) is not None:
            self.followed.add(thread)

    def settle(self) -> None:
        """Find out at last which words were in turns that were completed, where the API did not tell before."""

    async def begin(self) -> None:
        raise NotImplementedError

    async def open(self) -> str:
        """Open a new thread and return its id."""
        raise NotImplementedError

    async def say(self, thread: str, text: str) -> "str | None":
        """Say something; return the id of the turn, None if it was refused."""
        raise NotImplementedError

    async def ended(self, thread: str, turn: str) -> str:
        """Wait for the end of a turn and return its status."""
        raise NotImplementedError

    async def do(self, thread: str, deed: str, turn: "str | None") -> None:
        """Do something else, while that turn runs or none."""
        raise NotImplementedError

    async def history(self, thread: str) -> list[str] | None:
        """Open a stored thread again; return the marks of what was said in it. None if it cannot be opened."""
        raise NotImplementedError

    # --- life
    async def live(self) -> None:
        """Open threads and play turns in them."""
        try:
            await self.begin()
            for _ in range(self.habits.threads):
                thread = await self.open()
                self.record.threads.append(thread)
                self.go_on(thread)
        except Gone:
            return

    def go_on(self, thread: str) -> None:
        """Play turns in a thread that is open."""
        self.tasks.start_soon(self._use, thread, name="a person in a thread")

    async def _use(self, thread: str) -> None:
        try:
            for _ in range(self.habits.turns):
                await self._pause("gap")
                for deed in self.habits.deeds:
                    if self.draws.chance("deed before words now", self.habits.idle_deeds):
                        await self._does(thread, deed, None)
                if thread in self.record.gone or self.world.calm.is_set():
                    return
                await self.turn(thread)
        except Gone:
            return

    async def turn(self, thread: str) -> None:
        """Say something, do something beside, and wait for the end, as a rule."""
        word = self.record.new_word()
        turn = await self._says(thread, word)
        if turn is None:
            return
        waits = anyio.Event()
        self.tasks.start_soon(self._note_end, thread, turn, word, waits, name="a turn's end")
        if self.draws.chance("interrupt", self.habits.interrupts):
            self.tasks.start_soon(self._later, thread, "interrupt", turn, name="an interrupt")
        for deed in self.habits.deeds:
            if self.draws.chance("deed now", self.habits.eagerness):
                if not self.draws.chance("at once", self.habits.bursts):
                    await self.moment()
                await self._does(thread, deed, turn)
        if not self.draws.chance("does not wait", 0.15):
            await waits.wait()

    async def _does(self, thread: str, deed: str, turn: str | None) -> None:
        if self.habits.impatient:
            self.tasks.start_soon(self.try_deed, thread, deed, turn, name="a deed")
        else:
            await self.try_deed(thread, deed, turn)

    async def _says(self, thread: str, word: str) -> str | None:
        self.record.words[word] = "gone"
        turn = await self.say(thread, f"{word} please")
        self.record.words[word] = "refused" if turn is None else "accepted"
        return turn

    async def _note_end(self, thread: str, turn: str, word: str, ended: anyio.Event) -> None:
        state = "gone"
        try:
            state = await self.ended(thread, turn)
            if state == "completed":
                self.record.requests_at_end[word] = len(self.world.model.requests)
        except Gone:
            pass
        finally:
            self.record.words[word] = state
            ended.set()

    async def _later(self, thread: str, deed: str, turn: str) -> None:
        await self.moment()
        await self.try_deed(thread, deed, turn)

    async def moment(self) -> None:
        """Wait for some time, for so many messages, or for a sign."""
        wait = self.draws.pick("moment of a deed", self.habits.moments)
        with anyio.move_on_after(wait.seconds), suppress(Gone):
            if wait.sign is not None:
                seen = self._signs[wait.sign] + self.draws.pick("which sign", (1, 1, 2, 4))
                await self.until(lambda: self.world.calm.is_set() or self._signs[wait.sign] >= seen)
            elif wait.messages:
                heard = len(self.log) + wait.messages
                await self.until(lambda: len(self.log) >= heard)
            else:
                await self.world.calm.wait()
        if wait.later:
            await self._pause("behind a sign", (wait.later,))

    async def try_deed(self, thread: str, deed: str, turn: str | None) -> None:
        if self.world.calm.is_set():
            return
        try:
            if deed == "leave" and not self.left_early:
                self.left_early = True
                await self.leave()
                self.world.come_back()
            elif deed != "leave":
                if deed == "interrupt" and self.draws.chance("another mind", self.habits.changes_mind):
                    self.tasks.start_soon(self._change_mind, thread, turn, name="another mind")
                await self.do(thread, deed, turn)
        except Gone:
            pass

    async def _change_mind(self, thread: str, turn: str | None) -> None:
        """Say something right behind an interrupt; sometimes take that back, too."""
        await self.try_deed(thread, "second turn", turn)
        if self.draws.chance("no mind", 0.3):
            await self.try_deed(thread, "interrupt", turn)

    async def _pause(self, kind: str, seconds: Sequence[float] = ()) -> None:
        with anyio.move_on_after(self.draws.pick(kind, seconds or self.habits.gaps)):
            await self.world.calm.wait()


class Condition(Protocol):
    def __call__(self) -> bool: ...


class ThreadPerson(Person):
    """Speaks the thread API."""

    api = "v2"

    def __init__(self, world: World, wire: MemoryWire, tasks: TaskGroup, home: Path) -> None:
        super().__init__(world, wire, tasks, home)
        self._ends: dict[str, str] = {}
        self._completed: dict[str, list[str]] = {}
        """The items of each turn."""
        self._running: dict[str, str] = {}
        """Turns, and their threads."""
        self._latest: dict[str, str | None] = {}
        """The turn of each thread that was asked for beside another."""

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
        words = OLD_DECISIONS if question["method"] in OLD_QUESTIONS else DECISIONS
        return {"decision": words.get(kind, words["abort"])}

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
        answer = await self.ask("turn/start", {"threadId": thread, "input": _words(text), **wishes})
        return answer["result"]["turn"]["id"] if "result" in answer else None

    async def ended(self, thread: str, turn: str) -> str:
        await self.until(lambda: turn in self._ends)
        return self._ends[turn]

    async def _shown(self, method: str, params: Json) -> Json:
        """Ask for a thread with its turns: those that have ended are shown as they were told."""
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
                # Which turn these join is not told: it is only held that the model gets them in their order.
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
            params = {"threadId": thread, "expectedTurnId": turn or "", "input": _words(f"{word} please")}
            answer = await self.ask("turn/steer", params)
            joined = turn
        else:
            answer = await self.ask("turn/start", {"threadId": thread, "input": _words(f"{word} please")})
            joined = answer["result"]["turn"]["id"] if "result" in answer else None
            self._latest[thread] = joined
        if "result" not in answer or joined is None:
            self.record.words[word] = "refused"
            return
        self.record.words[word] = "accepted"
        self.tasks.start_soon(
            self._note_end, thread, joined, word, anyio.Event(), name="a steered turn's end"
        )


class ConversationPerson(Person):
    """Speaks the conversation API."""

    api = "v1"

    def __init__(self, world: World, wire: MemoryWire, tasks: TaskGroup, home: Path) -> None:
        super().__init__(world, wire, tasks, home)
        self._running: set[tuple[str, str]] = set()
        """Conversations, and the ids of their operations."""
        self._ended: dict[str, list[str]] = {}
        self._said: dict[str, str] = {}
        """The words, and where they were said."""
        self._troubled: set[str] = set()
        """Conversations of which a turn failed or was interrupted: which words it had is not told."""

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
        """Words join the turn that runs, so the next end may be an earlier turn's: which it was is settled at last."""
        at = int(turn)
        await self.until(lambda: len(self._ended.get(thread, ())) > at)
        return "ended"

    def settle(self) -> None:
        for word, thread in self._said.items():
            if self.record.words.get(word) == "ended" and thread not in self._troubled | self.record.gone:
                # Who has left may have been told of the end of the turn before, and of no begin.
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
                self.tasks.start_soon(
                    self._note_end, thread, joined, word, anyio.Event(), name="a joined turn"
                )
            case "settings":
                self.record.loosened = True
                op: Json = {"type": "override_turn_context", "approval_policy": "on-request"}
                await self.ask("submit", {"conversationId": thread, "op": op})
            case "read":
                await self.ask("listConversations", {"pageSize": 5})
            case "compact" | "review" | "rollback" | "shell":
                op = {
                    "compact": {"type": "compact"},
                    "review": {
                        "type": "review",
                        "review_request": {"prompt": "look", "user_facing_hint": "x"},
                    },
                    "rollback": {"type": "undo"},
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


class EditorPerson(Person):
    """Speaks the Agent Client Protocol."""

    api = "acp"

    def __init__(self, world: World, wire: MemoryWire, tasks: TaskGroup, home: Path) -> None:
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


EFFORTS = ("low", "high")
WISHES: Sequence[Json] = (
    *({"effort": effort} for effort in EFFORTS),
    {"outputSchema": {"type": "object", "properties": {}, "required": [], "additionalProperties": False}},
)
"""What words may come with."""

STORED = ("userMessage", "agentMessage", "reasoning", "commandExecution", "fileChange")
"""Items that are stored as such."""
STORED_ENDS = ("task_complete", "turn_aborted")
"""What a stored line of the end of a turn is."""

SAYINGS = (
    "user_message",
    "agent_message",
    "user_message_chunk",
    "agent_message_chunk",
    "userMessage",
    "agentMessage",
)
"""What is said, in the words of each API."""


def marks(texts: Iterable[str | None]) -> list[str]:
    """Return the marks that texts of people and of the model begin with. Of a text that broke off in its mark, `s12`,
    it may be that `s1` is all there is, which is not the mark of another.
    """
    found = (SAYING.match(text) for text in texts if text)
    return [each[0] + ("" if each.string[each.end() :] else "…") for each in found if each]


def marks_of(thread: Json) -> list[str]:
    """Return the marks of what was said in a thread with its turns."""
    items = [item for turn in thread["turns"] for item in turn["items"]]
    return marks(_text_of(item) for item in items if item["type"] in SAYINGS)


def _text_of(item: Json) -> str:
    return "".join(part.get("text", "") for part in item["content"]) if "content" in item else item["text"]


def _is_begin(message: Json, id: str) -> bool:
    """Tell whether the item or call begins with the message."""
    params = message.get("params") or {}
    return bool(
        (params.get("item") or {}).get("id") == id or (params.get("update") or {}).get("toolCallId") == id
    )


def _words(text: str) -> list[Json]:
    return [{"type": "text", "text": text}]


APIS = ("v2", "v1", "acp")
