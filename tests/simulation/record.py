"""What the people of a world did and were told, for the oracle. And questions as they are put to several people at
once: of each, one yes counts, and only from who was asked and was not told that it is over.
"""

import re
from collections import Counter
from dataclasses import dataclass, field

from app_server_protocol.structs import Json
from tests.simulation.sayings import call_of, thread_of

REPEATED = re.compile(r"^(call-\d+)-\d+$")
"""The id of a call whose own id another call had before."""


@dataclass(slots=True, eq=False)
class Round:
    """One question, to all who were asked it."""

    asked: set[str] = field(default_factory=set)
    """The names of those people."""
    yes: bool = False
    over: bool = False
    """Somebody has answered, or was told that it is over: who is asked from now on is asked something else."""


def about(params: Json) -> tuple[str, str]:
    """Return the thread and the call that a question is about; a call whose id was used before is that other one."""
    return thread_of(params) or "", REPEATED.sub(r"\1", call_of(params) or "")


class Rounds:
    """The questions of a world."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, str, str], Round] = {}
        """By server, thread and call."""
        self._of: dict[tuple[str, Json], Round] = {}
        """By person, and the id under which it was asked."""

    def asked(self, server: str, person: str, question: Json) -> None:
        """Take note that a person is asked."""
        if (person, question["id"]) in self._of:
            return  # again, as it joins once more
        key = server, *about(question["params"])
        last = self._last.get(key)
        if last is None or last.over or person in last.asked:
            last = self._last[key] = Round()
        last.asked.add(person)
        self._of[person, question["id"]] = last

    def answered(self, person: str, id: Json) -> None:
        """Take note that a person answers with a yes or a no."""
        self._of[person, id].over = True

    def is_over(self, person: str, id: Json) -> None:
        """Take note that a person was told that its question is over."""
        if (person, id) in self._of:
            self._of[person, id].over = True

    def says_yes(self, person: str, id: Json) -> bool:
        """Return whether this is the first yes to the question."""
        found = self._of[person, id]
        first, found.yes = not found.yes, True
        return first


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
    own_commands_done: list[OwnCommand] = field(default_factory=list)
    replies: dict[int, ReadReply] = field(default_factory=dict)
    """By number, as they were told of first."""
    told_done: set[tuple[str, str]] = field(default_factory=set)
    """Threads and marks of commands that were told to have run."""
    forks: list[Forked] = field(default_factory=list)
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
