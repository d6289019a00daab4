"""The order in which requests are served: requests of one conversation one after another, over all connections, and all
others at once.

The next request of a conversation begins once the one before was answered. The effects of a request after its response
delay only requests of its own connection: they may depend on how fast that client reads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable

import msgspec
from anyio.abc import TaskGroup
from msgspec import Struct

Job = Callable[[Callable[[], None]], Awaitable[None]]
"""Function that serves a request, and must not raise. Its argument is a function that it calls once it has answered, if
it goes on after that.
"""


class LaneName(Struct, frozen=True):
    name: str
    for_all: bool
    """Whether the lane is one for all connections of the server; if not, each connection has one of that name."""


class Lane(Struct, eq=False):
    """Jobs that are served one after another."""

    key: tuple[Lanes | None, str]
    waiting: deque[tuple[Lanes, Job]] = msgspec.field(default_factory=deque)
    """Jobs that have not begun, with their connections. None of them may begin now."""
    answering: bool = False
    """Whether a job of the lane is being served and was not answered yet."""
    settling: set[Lanes] = msgspec.field(default_factory=set)
    """Connections of the jobs that were answered and go on."""

    def take(self, lanes: Lanes) -> bool:
        """Return whether a job of this connection may begin now; the lane is then taken until that job is answered."""
        if self.answering or lanes in self.settling:
            return False
        self.answering = True
        return True


class ServerLanes:
    """The lanes of a server. A lane exists from its first job to the end of its last."""

    def __init__(self) -> None:
        self._lanes: dict[tuple[Lanes | None, str], Lane] = {}
        self._connections: set[Lanes] = set()

    @property
    def crowded(self) -> bool:
        """Whether several connections are served."""
        return len(self._connections) > 1

    def connect(self, group: TaskGroup) -> Lanes:
        """Return the lanes of one connection, whose jobs run in this task group."""
        lanes = Lanes(group, self)
        self._connections.add(lanes)
        return lanes

    def disconnect(self, lanes: Lanes) -> None:
        """Remove the jobs of a connection that have not begun."""
        self._connections.discard(lanes)
        for lane in self._lanes.values():
            lane.waiting = deque(each for each in lane.waiting if each[0] is not lanes)

    def lane(self, name: LaneName, lanes: Lanes) -> Lane:
        """Return the lane of that name, for a job of this connection."""
        key = None if name.for_all else lanes, name.name
        if (lane := self._lanes.get(key)) is None:
            lane = self._lanes[key] = Lane(key)
        return lane

    def go_on(self, lane: Lane) -> None:
        """Start the first waiting job that may begin now; remove the lane after its last job."""
        if lane.answering:
            return
        for position, (lanes, job) in enumerate(lane.waiting):
            if lane.take(lanes):
                del lane.waiting[position]
                lanes.group.start_soon(lanes.run_in, lane, job)
                return
        if not lane.waiting and not lane.settling:
            del self._lanes[lane.key]


class Lanes:
    """Starts the jobs of one connection."""

    def __init__(self, group: TaskGroup, server: ServerLanes) -> None:
        self.group, self._server = group, server
        self.running = 0
        """Number of jobs that run or wait in a lane."""

    def start(self, job: Job, name: LaneName | None = None) -> None:
        """Start a job: at once, or after those that are in its lane."""
        self.running += 1
        if name is None:
            self.group.start_soon(self._run, job)
        elif (lane := self._server.lane(name, self)).take(self):
            self.group.start_soon(self.run_in, lane, job)
        else:
            lane.waiting.append((self, job))

    async def _run(self, job: Job) -> None:
        try:
            await job(lambda: None)
        finally:
            self.running -= 1

    async def run_in(self, lane: Lane, job: Job) -> None:
        """Run a job that has taken its lane."""

        def answered() -> None:
            lane.answering = False
            lane.settling.add(self)
            self._server.go_on(lane)

        try:
            await job(answered)
        finally:
            self.running -= 1
            if self in lane.settling:
                lane.settling.remove(self)
            else:
                lane.answering = False
            self._server.go_on(lane)
