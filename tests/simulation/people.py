"""People who use the server in a simulated world, over any API. They send messages, do other deeds, answer questions
early, late, wrongly or never, and leave.

Every text that a person sends has a word of its own, `w17`, by which the oracle finds it again.
"""

import json
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from anyio.abc import TaskGroup

from app_server.engine.session.compaction import LESS_ACCURATE
from app_server_protocol.encoding import Json
from tests.simulation.connection import Connection, Gone
from tests.simulation.habits import TURNS_OWN
from tests.simulation.moments import sign_of
from tests.simulation.record import Compacted, ReadReply, Shown
from tests.simulation.sayings import MARK, call_of, is_begin, thread_of
from tests.simulation.stored import rollout_of
from tests.support.client import MemoryWire

if TYPE_CHECKING:
    from tests.simulation.sim_world import SimWorld

APIS = ("v2", "v1", "acp")

MOST_REFLEXES = 6
"""Maximum number of reflexes of a person. It is bounded because a reflex may show the same sign again."""

COMPACTED = LESS_ACCURATE.encode()
"""Text that every API shows behind a compaction."""

WITHDRAWALS = ("serverRequest/resolved", "$/cancel_request")
"""Notifications that tell a client that a question is over."""

YES: Json = {
    "decision": "accept",
    "outcome": {"outcome": "selected", "optionId": "approved"},
}
ON_THE_WAY = 30
"""Maximum number of messages that may be on their way while a person answers a question that has not arrived."""


class Person(Connection):
    """A client with habits."""

    def __init__(self, world: "SimWorld", wire: MemoryWire, tasks: TaskGroup, home: Path) -> None:
        super().__init__(world, wire, tasks, home)
        self.draws, self.habits = world.model.draws, world.model.habits
        self.record = world.record
        self.answers = self.habits.answers
        self.followed: set[str] = set()
        """Threads of others that the person joined."""
        self.withdrawn: set[Json] = set()
        """Ids of questions that the client was notified are over."""
        self._guesses: dict[Json, int] = {}
        """Ids that the person answered without a question, with the length of the log at that time."""
        self.open_questions: list[Json] = []
        """Questions that are not answered."""
        self.shown: list[Shown] = []
        self.wrong: list[str] = []
        """Violations that this person noticed."""
        self._paths: dict[str, Path | None] = {}
        self._signs: Counter[str] = Counter()
        self._reflexes = 0

    # --- receiving
    def hear(self, line: bytes) -> None:
        """Take a line from the server."""
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
        if COMPACTED in line:
            self._note_compaction(message["params"])
        self.wake()
        if (sign := sign_of(message)) is not None:
            self.notice(sign)
            if sign == self.habits.reflex and self._reflexes < MOST_REFLEXES:
                self._react(message["params"])

    def _note_compaction(self, params: Json) -> None:
        """Record that the client was shown the end of a compaction."""
        thread = thread_of(params)
        if thread is not None and self.home == self.world.home:
            self.record.compacted.append(Compacted(thread, self.world.model.begun))

    def notice(self, sign: str) -> None:
        """Act at this sign."""
        self._signs[sign] += 1
        self.wake()
        self.world.shown(sign)

    def _react(self, params: Json) -> None:
        """Act at once, while the operation that the message shows still runs."""
        thread = thread_of(params)
        if thread is not None and self.draws.chance("a reflex", 0.7):
            self._reflexes += 1
            deed = self.draws.pick("deed of a reflex", TURNS_OWN)
            self.tasks.start_soon(self.try_deed, thread, deed, params.get("turnId"), name="a reflex")

    def _note(self, thread: str, *stored_as: str) -> None:
        """Record the length of the thread's file when the client is shown something that has to be stored."""
        if self._paths.get(thread) is None:
            self._paths[thread] = rollout_of(self.home, thread)
        path = self._paths[thread]
        with suppress(OSError):
            self.shown.append(Shown(thread, stored_as, 0 if path is None else path.stat().st_size))

    def _read_reply(self, number: int) -> None:
        """Record that the client was shown the usage of a reply."""
        if number and self.home == self.world.home:
            self.record.replies.setdefault(number, ReadReply(number, self.world.model.begun))

    # --- questions
    def _shown_marks(self, question: Json) -> set[str]:
        """Return the marks of what a question is about, also where only the item or call before shows it."""
        id, thread = (
            call_of(question["params"]),
            thread_of(question["params"]),
        )  # two threads may have calls of one id
        shown = [
            message
            for message in self.received()
            if id is not None and is_begin(message, id) and thread_of(message["params"]) == thread
        ]
        return set(MARK.findall(json.dumps([question, *shown[-1:]])))

    def asked(self, question: Json) -> None:
        """Begin to answer a question."""
        self.open_questions.append(question)
        self.tasks.start_soon(self._answer, question, name="an answer")

    def _is_over(self, id: Json) -> None:
        """Record that a question is over, unless this person has answered it without a decision."""
        if id not in self.withdrawn:
            self.withdrawn.add(id)
            if any(each["id"] == id for each in self.open_questions):
                self.record.rounds.is_over(self.name, id)

    def _allow_guess(self, question: Json) -> None:
        """Count a guessed answer that was on its way when this question arrived as a yes."""
        if len(self.log) - self._guesses.pop(question["id"], -ON_THE_WAY) < ON_THE_WAY:
            self.record.yes.update(self._shown_marks(question))

    async def guess(self) -> None:
        """Answer yes under the id of a question that others received, of one that is over, or under any id."""
        mine = [each["id"] for each in self.open_questions]
        of_others = [each["id"] for person in self.world.people for each in person.open_questions]
        ids = [each for each in (*of_others, *sorted(self.withdrawn), *range(4)) if each not in mine]
        id = self.draws.pick("guessed id", ids or [max(mine) + 1])
        self._guesses[id] = len(self.log)
        with suppress(Gone):
            await self.write(self._message({"id": id, "result": YES}))

    async def decide(self, question: Json) -> str:
        """Wait as long as the person thinks about a question; return the kind of its answer."""
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
                await self.try_deed(thread_of(params) or "", "interrupt", params.get("turnId"))
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

    # --- the parts that differ between the APIs
    def told(self, message: Json) -> None:
        """Take a notification."""
        raise NotImplementedError

    def decision(self, question: Json, kind: str) -> Json:
        """Return the result of a question: `yes`, `no`, `session`, `abort` or `twice`, which is a yes."""
        raise NotImplementedError

    def busy(self) -> bool:
        """Return whether a turn runs, as far as the client was notified."""
        raise NotImplementedError

    def running_in(self, thread: str) -> str | None:
        """Return the turn that runs in a thread, if the API names turns; None otherwise."""

    async def follow(self, thread: str) -> None:
        """Join a thread that others may have opened."""
        if await self.history(thread) is not None:
            self.followed.add(thread)

    def settle(self) -> None:
        """Find out at last which messages were in completed turns, where the API did not show it before."""

    async def begin(self) -> None:
        raise NotImplementedError

    async def open(self) -> str:
        """Open a new thread and return its id."""
        raise NotImplementedError

    async def say(self, thread: str, text: str) -> "str | None":
        """Send a message; return the id of the turn. None if it was refused."""
        raise NotImplementedError

    async def ended(self, thread: str, turn: str) -> str:
        """Wait for the end of a turn and return its status."""
        raise NotImplementedError

    async def do(self, thread: str, deed: str, turn: "str | None") -> None:
        """Do another deed, while that turn or none runs."""
        raise NotImplementedError

    async def history(self, thread: str) -> list[str] | None:
        """Open a stored thread again; return the marks of its messages. None if it cannot be opened."""
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
                await self._between_turns(thread)
                for deed in self.habits.deeds:
                    if self.draws.chance("deed before words now", self.habits.idle_deeds):
                        await self._does(thread, deed, None)
                if thread in self.record.gone or self.world.calm.is_set():
                    return
                await self.turn(thread)
            await self._between_turns(thread)
        except Gone:
            return

    async def _between_turns(self, thread: str) -> None:
        """Write files and go back, where people do."""
        for deed in ("write", "go back", "write") if self.habits.goes_back else ():
            if thread not in self.record.gone and self.draws.chance(f"{deed} between turns", 0.6):
                await self.try_deed(thread, deed, None)

    def write_file(self) -> None:
        if not self.dead:
            self.record.files.write(self.world, self.record.new_word())

    async def turn(self, thread: str) -> None:
        """Send a message, do other deeds meanwhile, and usually wait for the end of the turn."""
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
        """Wait for some time, for a number of messages, or for a sign."""
        wait = self.draws.pick("moment of a deed", self.habits.moments)
        with anyio.move_on_after(wait.seconds), suppress(Gone):
            if (sign := wait.sign) is not None:
                seen = self._signs[sign] + self.draws.pick("which sign", (1, 1, 2, 4))
                await self.until(lambda: self.world.calm.is_set() or self._signs[sign] >= seen)
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
            elif deed == "write":
                self.write_file()
            elif deed != "leave":
                if deed == "interrupt" and self.draws.chance("another mind", self.habits.changes_mind):
                    self.tasks.start_soon(self._change_mind, thread, turn, name="another mind")
                await self.do(thread, deed, turn)
        except Gone:
            pass

    async def _change_mind(self, thread: str, turn: str | None) -> None:
        """Send a message right after an interrupt, and sometimes interrupt that, too."""
        await self.try_deed(thread, "second turn", turn)
        if self.draws.chance("no mind", 0.3):
            await self.try_deed(thread, "interrupt", turn)

    async def _pause(self, kind: str, seconds: Sequence[float] = ()) -> None:
        with anyio.move_on_after(self.draws.pick(kind, seconds or self.habits.gaps)):
            await self.world.calm.wait()
