"""What the people of a world did and were told, for the oracle."""

from collections import Counter
from dataclasses import dataclass, field

from tests.simulation.rounds import Rounds


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
