"""The record of what the people of a world did and received, for the oracle.

It also has the questions that several people receive at once: of each, one yes counts, and only from a person who
received it and was not notified that it is over.
"""

import re
from collections import Counter
from dataclasses import dataclass, field

from app_server_protocol.encoding import Json
from tests.simulation.sayings import call_of, thread_of
from tests.simulation.users_files import UsersFiles

REPEATED = re.compile(r"^(call-\d+)-\d+$")
"""Pattern of a call's id which the server extended, because another call had the same id before."""


@dataclass(slots=True, eq=False)
class Round:
    """One question, with all people who received it."""

    asked: set[str] = field(default_factory=set)
    """Names of the people who received it."""
    yes: bool = False
    over: bool = False
    """Whether a person has answered, or was notified that it is over. A person who is asked afterwards gets another
    question.
    """


def about(params: Json) -> tuple[str, str]:
    """Return the thread and the call that a question is about. A repeated call counts under its original id."""
    return thread_of(params) or "", REPEATED.sub(r"\1", call_of(params) or "")


class Rounds:
    """All questions of a world."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, str, str], Round] = {}
        """Last question, by server, thread and call."""
        self._of: dict[tuple[str, Json], Round] = {}
        """Question, by person and the id under which the person received it."""

    def asked(self, server: str, person: str, question: Json) -> None:
        """Record that a person received a question."""
        if (person, question["id"]) in self._of:
            return  # received again, because the person joined once more
        key = server, *about(question["params"])
        last = self._last.get(key)
        if last is None or last.over or person in last.asked:
            last = self._last[key] = Round()
        last.asked.add(person)
        self._of[person, question["id"]] = last

    def answered(self, person: str, id: Json) -> None:
        """Record that a person answers with a yes or a no."""
        self._of[person, id].over = True

    def is_over(self, person: str, id: Json) -> None:
        """Record that a person was notified that the question is over."""
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
    """Number of requests to the model that had begun at the end of the command."""


@dataclass(frozen=True, slots=True)
class Forked:
    """Copy of a thread."""

    child: str
    parent: str
    after_requests: int
    """Number of requests to the model that had begun when the copy was requested."""
    before_requests: int
    """Number of requests to the model that had begun when the copy existed."""


@dataclass(frozen=True, slots=True)
class ReadReply:
    """A reply of the model that was read to its end."""

    number: int
    """Number of the reply among all replies, counted from 1."""
    after_requests: int
    """Number of requests to the model that had begun when a person was shown the reply's usage."""


@dataclass(frozen=True, slots=True)
class Compacted:
    """Compaction whose end a person was shown."""

    thread: str
    after_requests: int
    """Number of requests to the model that had begun then."""


@dataclass(frozen=True, slots=True)
class TakenBack:
    """Word that a person was told has left a conversation."""

    thread: str
    word: str
    after_requests: int
    """Number of requests to the model that had begun then."""


@dataclass(slots=True)
class Record:
    """Record of what the people of a world did and received, for the oracle."""

    words: dict[str, str] = field(default_factory=dict)
    """State of each word: `completed` or another state in which its turn ended, or `accepted` until then."""
    requests_at_end: dict[str, int] = field(default_factory=dict)
    """Number of requests that the model had received when the turn of a word ended, by word."""
    yes: Counter[str] = field(default_factory=Counter)
    """Number of approvals, by the marks of what they were about."""
    rounds: Rounds = field(default_factory=Rounds)
    session_yes: set[str] = field(default_factory=set)
    """Marks that were approved for the rest of a session."""
    own_commands: set[str] = field(default_factory=set)
    own_commands_done: list[OwnCommand] = field(default_factory=list)
    replies: dict[int, ReadReply] = field(default_factory=dict)
    """Replies by number, in the order in which they were first reported to a person."""
    told_done: set[tuple[str, str]] = field(default_factory=set)
    """Threads and marks of commands that were reported to have run."""
    forks: list[Forked] = field(default_factory=list)
    reverted: set[str] = field(default_factory=set)
    """Threads that were reverted to an earlier turn."""
    compacted: list[Compacted] = field(default_factory=list)
    taken_back: list[TakenBack] = field(default_factory=list)
    said_in_old_words: set[str] = field(default_factory=set)
    """Words that were sent over the conversation API, which does not show those that join a turn."""
    loosened: bool = False
    """Whether a person changed the policy or the sandbox."""
    turn_ends: dict[tuple[str, str], str] = field(default_factory=dict)
    """Status that each turn of a thread was reported to have ended with."""
    threads: list[str] = field(default_factory=list)
    files: UsersFiles = field(default_factory=UsersFiles)
    gone: set[str] = field(default_factory=set)
    """Threads that were archived or deleted."""
    count: int = 0

    def new_word(self) -> str:
        self.count += 1
        return f"w{self.count}"


@dataclass(frozen=True, slots=True)
class Shown:
    """Message that a client was shown, and the stored length of its thread at that time."""

    thread: str
    stored_as: tuple[str, ...]
    """Regular expressions for the stored line; one match is enough."""
    size: int
