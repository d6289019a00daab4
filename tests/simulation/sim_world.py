"""The state of a simulated world while it is played: its people, its servers, its record, and its end by a kill."""

import asyncio
import itertools
import math
import os
import random
import shutil
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypedDict

import anyio
from anyio.abc import TaskGroup

from app_server.engine.config.config_values import SharingSettings
from app_server.engine.system_ports import SystemPorts
from app_server.server.composition import Server, open_server, serve
from app_server.server.server_settings import ClientSettings, ServerSettings
from app_server.server.transport.memory import MemoryTransport, memory_pair
from tests.simulation.company import come_back
from tests.simulation.conversation_person import ConversationPerson
from tests.simulation.draws import Draws
from tests.simulation.editor_person import EditorPerson
from tests.simulation.habits import Habits
from tests.simulation.library_person import LibraryPerson
from tests.simulation.loop import SimLoop
from tests.simulation.people import Person
from tests.simulation.record import Record
from tests.simulation.sim_commands import Commands, runner_of
from tests.simulation.sim_disk import Writers, sim_disk
from tests.simulation.sim_model import SimHttp, SimModel
from tests.simulation.stored import rollouts
from tests.simulation.streamed_text import note_what_streams
from tests.simulation.thread_person import ThreadPerson
from tests.support.client import MemoryWire

EPOCH = 1_790_000_000
"""Time at which every world begins, in seconds since 1970."""

PEOPLE: Mapping[str, type[Person]] = {
    "v1": ConversationPerson,
    "v2": ThreadPerson,
    "acp": EditorPerson,
    "library": LibraryPerson,
}


class Surroundings(TypedDict):
    """Settings that every client of a world has."""

    home: Path
    cwd: Path
    environment: Mapping[str, str]
    acp: bool


@dataclass(slots=True)
class SimWorld:
    """State of a world while it is played."""

    draws: Draws
    root: Path
    habits: Habits
    model: SimModel
    commands: Commands
    loop: SimLoop
    record: Record = field(default_factory=Record)
    calm: anyio.Event = field(default_factory=anyio.Event)
    people: list[Person] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    killed: anyio.Event = field(default_factory=anyio.Event)
    last_killed: int = 0
    """Number of the last server that began before the kill. 0 if there was none."""
    restarted: bool = False
    """Whether the server that follows a killed one is there."""
    guests: int = 0
    """Number of clients beside the first that are connected."""
    guest_left: anyio.Event = field(default_factory=anyio.Event)
    came_back: int = 0
    streamed: dict[str, set[str]] = field(default_factory=dict)
    """Text that streamed when the server was killed and that has to be there later, by thread."""
    shared: Server | None = None
    """The first server if several clients share it; None otherwise."""
    over: anyio.Event = field(default_factory=anyio.Event)
    """Event after which no client connects to the shared server any more."""
    ended: anyio.Event = field(default_factory=anyio.Event)
    """Event that is set when the shared server has ended."""
    wall_clock_off: float = 0.0
    """Offset of the wall clock in seconds."""
    signs: Counter[str] = field(default_factory=Counter)
    """Number of times that people were shown each sign."""
    writes: int = 0
    """Number of writes of stored files."""
    machines: Iterator[int] = field(default_factory=itertools.count)
    """Numbers of the machines. Each server runs on a machine of its own."""
    tasks: TaskGroup | None = None
    """Task group of the first part. None before it begins."""
    writers: Writers = field(default_factory=Writers)

    @property
    def workspace(self) -> str:
        return str(self.root / "workspace")

    @property
    def loses_lines(self) -> bool:
        """Whether lines may be missing or damaged: a write failed in its middle, or data that was not synced
        was lost.
        """
        habits = self.habits
        return bool(habits.disk_faults or habits.full_disk or (habits.power_cut and self.killed.is_set()))

    @property
    def home(self) -> Path:
        return self.root / "home"

    def now(self) -> float:
        return EPOCH + self.loop.time() + self.wall_clock_off

    def shown(self, sign: str) -> None:
        """Count a sign, and kill the process if it is to be killed at this sign."""
        self.signs[sign] += 1
        if (sign, self.signs[sign]) == self.habits.crash_sign:
            if self.habits.crash_later:
                self.loop.call_later(self.habits.crash_later, self._crash)
            else:
                self._crash()

    def written(self) -> None:
        self.writes += 1
        if self.writes == self.habits.crash_write:
            self._crash()

    def _crash(self) -> None:
        self.kill()

    def kill(self) -> bool:
        """Kill the process while anything may happen. Return whether it was."""
        if self.calm.is_set() or self.killed.is_set():
            return False
        kill(self)
        return True

    def thread_begins(self) -> None:
        """Let people act while the server waits for a thread. This moment is invisible to them, and much is half done
        then.
        """
        for person in self.people:
            person.notice("thread")

    def new_name(self, api: str) -> str:
        return f"{api}.{len(self.people) + 1}"

    def come_back(self) -> None:
        if self.habits.comes_back and self.came_back < 2 and not self.killed.is_set():
            self.came_back += 1
            assert self.tasks is not None
            self.tasks.start_soon(come_back, self, name="somebody who comes back")

    async def all_quiet(self) -> None:
        """Wait until every turn of the people has ended."""
        quiet = 0
        while quiet < 3:
            await anyio.sleep(5)
            waits = "accepted" in self.record.words.values()
            busy = any((p.busy() or p.asking) and not p.left_early for p in self.people)
            quiet = 0 if waits or busy else quiet + 1

    async def guests_left(self) -> None:
        await self.all_quiet()
        while self.guests:
            self.guest_left = anyio.Event()
            await self.guest_left.wait()

    @asynccontextmanager
    async def connection(self, api: str) -> AsyncIterator[Person]:
        """Connect one more client to the first server. At the end of the block it leaves, or dies if it is `dead`."""
        assert self.shared is not None
        assert self.tasks is not None
        async with anyio.create_task_group() as tasks:
            server_end, client_end = memory_pair(buffered=self.draws.pick("unread lines", (math.inf, 1)))
            place = ClientSettings(
                **_surroundings(self, api, self.home), shared=True, receives_all_threads=False
            )
            self.tasks.start_soon(_serve_one, self.shared, server_end, place, name="a connection")
            person = PEOPLE[api](self, MemoryWire(client_end), tasks, self.home)
            person.server = self.people[0].name
            self.people.append(person)
            tasks.start_soon(person.read, name="a client")
            try:
                yield person
                if not person.dead:
                    person.left_early |= person.busy() or person.asking > 0
                    await person.leave()
                    person.left_early |= person.busy()
            finally:
                person.left_early |= person.dead or self.killed.is_set()
                client_end.close()
            tasks.cancel_scope.cancel()

    def again(self, api: str) -> AbstractAsyncContextManager[Person]:
        """Connect a person who was here before, to the server that is there or to a new one."""
        return self.server(api) if self.shared is None else self.connection(api)

    @asynccontextmanager
    async def server(self, api: str, home: Path | None = None) -> AsyncIterator[Person]:
        """Start a server of its own with one client, who leaves at the end of the block."""
        async with anyio.create_task_group() as tasks:
            person = arrive(self, tasks, api, home or self.home)
            try:
                yield person
            except anyio.get_cancelled_exc_class():
                person.left_early = True  # the client came as the server was killed
                raise
            person.left_early |= person.busy() or person.asking > 0
            await person.leave()
            person.left_early |= person.busy()  # a turn may have begun meanwhile
            tasks.cancel_scope.cancel()


def arrive(world: SimWorld, tasks: TaskGroup, api: str, home: Path) -> Person:
    """Start a server with one client."""
    server_end, client_end = memory_pair()
    shared = bool(world.habits.company) and not world.people
    turn, question = world.habits.unattended
    sharing = SharingSettings(unwatched_minutes=turn / 60, question_hours=question / 3600)
    settings = ServerSettings(
        **_surroundings(world, api, home),
        machine=_machine(world, home),
        shared=shared,
        sharing=sharing if shared else None,
    )

    async def run() -> None:
        if not shared:
            await serve(server_end, settings)
            server_end.close()
            return
        async with open_server(settings) as world.shared:
            await _serve_one(world.shared, server_end, settings)
            await world.over.wait()
        world.ended.set()

    person = PEOPLE[api](world, MemoryWire(client_end), tasks, home)
    world.people.append(person)
    tasks.start_soon(run, name="the server")
    tasks.start_soon(person.read, name="the client")
    return person


def _surroundings(world: SimWorld, api: str, home: Path) -> "Surroundings":
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(world.root / "user"), "CODEX_HOME": str(home)}
    return {"home": home, "cwd": Path(world.workspace), "environment": environment, "acp": api == "acp"}


async def _serve_one(server: Server, end: MemoryTransport, place: ClientSettings) -> None:
    await server.serve(end, place)
    end.close()


def kill(world: SimWorld) -> None:
    """Keep the files that are on the disk at this moment. The rest of the process's life has no effect."""
    shutil.copytree(world.home, world.root / "killed")
    if world.habits.power_cut:
        world.model.note("power cut")
        for path in rollouts(world.home / "sessions"):
            status = path.stat()
            unsynced = status.st_size - world.writers.synced.get(status.st_ino, 0)
            if unsynced > 0:
                kept = status.st_size - world.draws.below("bytes that are lost", unsynced + 1)
                os.truncate(world.root / "killed" / path.relative_to(world.home), kept)
    if any(person.busy() for person in world.people):
        world.model.note("killed while a turn runs")
    for person in world.people:
        person.dead = person.left_early = True
    world.last_killed = world.model.servers
    world.killed.set()
    note_what_streams(world)


def _machine(world: SimWorld, home: Path) -> SystemPorts:
    loop = asyncio.get_running_loop()
    ids = random.Random(len(world.people))
    return SystemPorts(
        time_ns=lambda: int(world.now() * 1e9),
        monotonic=loop.time,
        random=ids.randbytes,
        disk=sim_disk(world, next(world.machines)),
        http=lambda environment: SimHttp(world.model, home),
        runner=runner_of(world.commands),
    )
