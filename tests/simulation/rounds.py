"""Questions as they are put to several people at once: of each, one yes counts, and only from who was asked and was not
told that it is over.
"""

import re
from dataclasses import dataclass, field

from protocol.structs import Json
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
