"""The clients of a shared server, each with the messages of its connection."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from app_server_protocol.encoding import Json

if TYPE_CHECKING:
    from tests.simulation.people import Person
    from tests.simulation.sim_world import SimWorld

OPENS = ("thread/start", "thread/resume", "thread/fork")
SOON = 8.0
"""Maximum delay until all clients have received a message, in virtual seconds: more than the disk and the threads of a
world take.
"""


@dataclass(frozen=True, slots=True)
class Heard:
    """Message of a person's connection, with its position in the whole world."""

    position: int
    seconds: float
    sent: bool
    message: Json

    @property
    def method(self) -> str:
        return str(self.message.get("method", ""))

    @property
    def params(self) -> Json:
        return self.message.get("params") or {}

    @property
    def is_question(self) -> bool:
        return not self.sent and "method" in self.message and "id" in self.message


@dataclass(slots=True)
class Follower:
    """Person with the messages of the connection."""

    person: "Person"
    heard: list[Heard]
    since: dict[str, Heard] = field(default_factory=dict)
    """Answer with which each thread was opened or joined over the thread API, by thread."""
    brought: set[str] = field(default_factory=set)
    """Threads that were begun on this connection, with the tools of this client."""

    def stays(self, thread: str, begin: Heard) -> bool:
        """Return whether the thread is followed from before that message until some time after it."""
        joined = self.since.get(thread)
        return joined is not None and joined.seconds < begin.seconds and self.is_there(begin)

    def is_there(self, begin: Heard) -> bool:
        """Return whether this person stays for some time after that message."""
        left = self.person.left_at
        return left is None or left > begin.seconds + SOON

    def near(self, begin: Heard) -> Iterator[Heard]:
        """Yield the messages received at about the time of that message."""
        return (each for each in self.heard if not each.sent and abs(each.seconds - begin.seconds) <= SOON)


def followers(world: "SimWorld") -> list[Follower]:
    """List the clients of the first server."""
    first = world.people[0].name
    found = {each.name: Follower(each, []) for each in world.people if each.server == first}
    for position, entry in enumerate(world.model.journal.entries):
        if entry.who in found:
            found[entry.who].heard.append(Heard(position, entry.seconds, entry.sent, entry.message))
    for each in found.values():
        asked: dict[Json, str] = {}
        for heard in each.heard:
            if heard.sent and heard.method in OPENS:
                asked[heard.message["id"]] = heard.method
            elif not heard.sent and "result" in heard.message and heard.message.get("id") in asked:
                method, thread = asked[heard.message["id"]], heard.message["result"]["thread"]["id"]
                each.since.setdefault(thread, heard)
                if method == "thread/start":
                    each.brought.add(thread)
    return list(found.values())
