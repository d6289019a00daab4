"""One simulated world: a server, people, a model, commands and a disk, all in one thread and in virtual time.

A world has two parts. In the first anything may happen that its habits allow. Then the faults stop, questions get their
answers and commands end: every turn has to end, and what is stored has to be read by a second server. The oracle looks
at what was said, run and stored.
"""

import asyncio
import gc
import hashlib
import json
import logging
import math
import os
import random
import re
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TypedDict

import anyio
import pytest
from anyio.abc import TaskGroup

from app_server.machine import Machine
from app_server.server import ClientPlace, Server, ServerSettings, UnattendedLimits, open_server, serve
from app_server.transport.memory import MemoryTransport, memory_pair
from tests.simulation.company import keep_company
from tests.simulation.coverage import situations_of
from tests.simulation.draws import Choices, Draws
from tests.simulation.habits import Habits, draw_habits
from tests.simulation.journal import Entry, Journal
from tests.simulation.later import all_tell_the_same, beginning, second_server
from tests.simulation.library_person import LibraryPerson
from tests.simulation.loop import Deadlock, SimLoop, describe_tasks, threads_in_the_loop
from tests.simulation.oracle import violations
from tests.simulation.people import ConversationPerson, EditorPerson, Person, Record, ThreadPerson
from tests.simulation.sim_commands import Commands, runner_of
from tests.simulation.sim_disk import Writers, reading_fails, sim_disk
from tests.simulation.sim_model import SimHttp, SimModel
from tests.simulation.stored import rollouts
from tests.simulation.streamed_text import note_what_streams
from tests.simulation.visits import come_back, visit
from tests.simulation.watchdog import Spin, step_limit
from tests.support.client import MemoryWire

EPOCH = 1_790_000_000
"""When every world begins, in seconds since 1970."""

ROOT = Path("/dev/shm" if os.path.isdir("/dev/shm") else tempfile.gettempdir())
"""Where worlds have their files: in memory, where the system has such a folder."""
OF_KILLED = "of-killed"
"""The folder to which the home of a process is moved that was killed."""

PEOPLE: Mapping[str, type[Person]] = {
    "v1": ConversationPerson,
    "v2": ThreadPerson,
    "acp": EditorPerson,
    "library": LibraryPerson,
}

FIRST_PART = 900.0
"""Virtual seconds that people have."""

LAST_PART = 4000.0
"""Virtual seconds in which every turn has to end when the faults have stopped: more than all retries take."""


class Surroundings(TypedDict):
    """What every client of a world brings."""

    home: Path
    cwd: Path
    environment: Mapping[str, str]
    acp: bool


@dataclass(slots=True)
class SimWorld:
    """A world while it is played."""

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
    guests: int = 0
    """Clients beside the first, with servers of their own."""
    guest_left: anyio.Event = field(default_factory=anyio.Event)
    came_back: int = 0
    streamed: dict[str, set[str]] = field(default_factory=dict)
    """By thread: text that streamed when the server was killed and that has to be there later."""
    shared: Server | None = None
    """The first server, where several clients share it."""
    over: anyio.Event = field(default_factory=anyio.Event)
    """Nobody connects to it any more."""
    ended: anyio.Event = field(default_factory=anyio.Event)
    """It has ended."""
    wall_clock_off: float = 0.0
    """Seconds by which the wall clock was set."""
    signs: Counter[str] = field(default_factory=Counter)
    """What people were shown, how often."""
    writes: int = 0
    """Of stored files."""
    tasks: TaskGroup | None = None
    """Of the first part."""
    writers: Writers = field(default_factory=Writers)

    @property
    def workspace(self) -> str:
        return str(self.root / "workspace")

    @property
    def loses_lines(self) -> bool:
        """Whether lines may be missing or damaged: a write failed in its middle, or what was not synced was lost."""
        habits = self.habits
        return bool(habits.disk_faults or habits.full_disk or (habits.power_cut and self.killed.is_set()))

    @property
    def home(self) -> Path:
        return self.root / "home"

    def now(self) -> float:
        return EPOCH + self.loop.time() + self.wall_clock_off

    def wait(self, seconds: float) -> None:
        self.loop.jump(seconds)

    def shown(self, sign: str) -> None:
        """Kill the process where that is to happen as people are shown something."""
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
        if not (self.calm.is_set() or self.killed.is_set()):
            _kill(self)

    def thread_begins(self) -> None:
        """Let people act while the server waits for a thread: nobody sees that, and much is half done then."""
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
        """Connect one more client to the first server. It leaves in the end, or dies where it is `dead`."""
        assert self.shared is not None
        assert self.tasks is not None
        async with anyio.create_task_group() as tasks:
            server_end, client_end = memory_pair(buffered=self.draws.pick("unread lines", (math.inf, 1)))
            place = ClientPlace(**_surroundings(self, api, self.home), shared=True, hears_all=False)
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
        """Connect somebody who was here before: to the server that is there, or to a new one."""
        return self.server(api) if self.shared is None else self.connection(api)

    @asynccontextmanager
    async def server(self, api: str, home: Path | None = None) -> AsyncIterator[Person]:
        """Start a server of its own with one client, who leaves in the end."""
        async with anyio.create_task_group() as tasks:
            person = _arrive(self, tasks, api, home or self.home)
            yield person
            person.left_early |= person.busy() or person.asking > 0
            await person.leave()
            person.left_early |= person.busy()  # a turn may have begun meanwhile
            tasks.cancel_scope.cancel()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a world."""

    seed: int
    problems: tuple[str, ...]
    made: Choices
    digest: str
    """Of all that was said and stored."""
    virtual_seconds: float
    situations: Mapping[str, int]
    habits: Habits
    journal: tuple[Entry, ...]

    @property
    def report(self) -> str:
        """What is wrong, and the commands that show the world and shrink it."""
        show = f"make simulate ARGS='--seed {self.seed}'"
        return "\n".join([*self.problems, show, f"make simulate ARGS='--seed {self.seed} --shrink'"])

    def failing(self, problems: tuple[str, ...]) -> "Outcome":
        """Return the same world with other problems."""
        return replace(self, problems=problems)


def play(seed: int, given: Choices | None = None, *, keep: Path | None = None) -> Outcome:
    """Play one world. `keep`: a folder that the world's files are left in."""
    draws = Draws(seed, given)
    habits = draw_habits(draws)
    root = ROOT / f"simulation-{os.getpid():07d}"  # a path of the same length in every process
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(mode=0o700)
    before = _open_files()
    try:
        with _collected_behind():
            outcome = _play(seed, draws, habits, root)
        if left := _open_files() - before:
            gc.collect()  # closes what nobody uses any more
            left = _open_files() - before
        return outcome.failing((*outcome.problems, f"left open: {sorted(left)}")) if left else outcome
    finally:
        if keep is not None:
            shutil.copytree(root, keep, dirs_exist_ok=True)
        shutil.rmtree(root, ignore_errors=True)


@contextmanager
def _collected_behind() -> Iterator[None]:
    """Keep the garbage collector from running in a world: it takes time, and finalizers would run at any moment. Behind
    the world it looks at what was made in it, and at nothing older.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
        gc.collect(0)


def _open_files() -> set[str]:
    """Return the descriptors of this process, with what they are open on. Those of a simulated process that was killed
    are left out: the system closes them.
    """
    found = set()
    for number in os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else ():
        with suppress(OSError):  # the one that lists them
            found.add(f"{number} {os.readlink(f'/proc/self/fd/{number}')}")
    return {each for each in found if f"/{OF_KILLED}/" not in each}


def _play(seed: int, draws: Draws, habits: Habits, root: Path) -> Outcome:
    for name in ("home", "workspace", "user"):
        (root / name).mkdir()
    loop = SimLoop(draws)
    model = SimModel(draws, habits, Journal(loop.time))
    world = SimWorld(draws, root, habits, model, Commands(model), loop)
    _write_config(world)
    if habits.crash_at is not None:
        loop.before_round[habits.crash_at] = lambda: _kill(world)
    for step, seconds in habits.clock_jumps:
        loop.before_round[step] = partial(_jump, world, seconds)
    if habits.full_disk:
        loop.before_round[100 + draws.below("step of the full disk", 2000)] = lambda: _fill_disk(world)
    with (
        _virtual(world),
        threads_in_the_loop(draws, habits.thread_delays, world.thread_begins),
        reading_fails(model, world.home),
    ):
        try:
            with step_limit(lambda: loop.rounds):
                anyio.run(_both_parts, world, backend_options={"loop_factory": lambda: loop})
        except Deadlock:
            world.problems.append(f"deadlock:\n{describe_tasks(loop)}")
        except Spin as spin:
            world.problems.append(str(spin))
        except BaseExceptionGroup as group:
            told = (
                str(each) if isinstance(each, Spin) else f"exception: {each!r}" for each in _leaves(group)
            )
            world.problems += told
    if not loop.is_closed():
        loop.close()
    world.problems += [*world.writers.problems, *violations(world)]
    journal = tuple(model.journal.entries)
    said = json.dumps([[each.seconds, each.who, each.sent, each.message] for each in journal], sort_keys=True)
    stored = [path.read_bytes().decode(errors="backslashreplace") for path in rollouts(world.home)]
    text = re.sub(r"simulation-\d*", "ROOT", "\n".join([said, *stored]))  # also where a line was torn in it
    return Outcome(
        seed,
        tuple(world.problems),
        draws.made,
        hashlib.sha256(text.encode()).hexdigest(),
        loop.time(),
        situations_of(journal),
        habits,
        journal,
    )


def _leaves(group: BaseExceptionGroup) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error


async def _both_parts(world: SimWorld) -> None:
    jumps = sum(max(seconds, 0.0) for _, seconds in world.habits.clock_jumps)
    with anyio.move_on_after(FIRST_PART + LAST_PART + jumps) as limit:
        async with anyio.create_task_group() as tasks:
            person = _arrive(world, tasks, world.habits.api, world.home)
            world.tasks = tasks
            if world.habits.visitor:
                tasks.start_soon(visit, world, name="a visitor")
            for api in world.habits.company:
                tasks.start_soon(keep_company, world, api, name="somebody beside the first")
            tasks.start_soon(_die, world, tasks, name="the end of the process")
            with anyio.move_on_after(FIRST_PART):
                await person.live()
                await world.all_quiet()
            await _calm_down(world, person)
            tasks.cancel_scope.cancel()
        world.loop.before_round.clear()
        if world.killed.is_set():
            os.rename(world.home, world.root / OF_KILLED)
            os.rename(world.root / "killed", world.home)
            world.model.note("killed")
            _let_go(world)
        await second_server(world)
        if world.draws.chance("a beginning goes on", 0.3):
            await beginning(world)
        if world.draws.chance("all APIs tell", 0.15):
            await all_tell_the_same(world)
    if limit.cancelled_caught:
        world.problems.append(f"the world did not end:\n{describe_tasks(asyncio.get_running_loop())}")
    if len(asyncio.all_tasks()) > 1:
        world.problems.append(f"tasks are left:\n{describe_tasks(asyncio.get_running_loop())}")


def _arrive(world: SimWorld, tasks: TaskGroup, api: str, home: Path) -> Person:
    """Start a server with one client."""
    server_end, client_end = memory_pair()
    shared = bool(world.habits.company) and not world.people
    settings = ServerSettings(
        **_surroundings(world, api, home),
        machine=_machine(world, home),
        shared=shared,
        unattended=UnattendedLimits(*world.habits.unattended) if shared else None,
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


async def _serve_one(server: Server, end: MemoryTransport, place: ClientPlace) -> None:
    await server.serve(end, place)
    end.close()


def _jump(world: SimWorld, seconds: float) -> None:
    """Move both clocks on, as after a suspend, or set the wall clock back."""
    world.model.note("a clock jumped")
    if seconds > 0:
        world.loop.jump(seconds)
    else:
        world.wall_clock_off += seconds


def _fill_disk(world: SimWorld) -> None:
    world.model.note("the disk is full")
    world.model.disk_is_full = True


def _kill(world: SimWorld) -> None:
    """Keep what is on the disk at this moment; the rest of the process's life is not seen."""
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
    world.killed.set()
    note_what_streams(world)


async def _die(world: SimWorld, tasks: TaskGroup) -> None:
    """End every task of the process that was killed."""
    await world.killed.wait()
    tasks.cancel_scope.cancel()


def _let_go(world: SimWorld) -> None:
    """Stop the faults for the server that follows one that was killed."""
    world.model.faults, world.model.calm = False, True
    for step, _ in world.habits.clock_jumps:
        world.loop.before_round.pop(step, None)
    world.commands.calm_down()
    world.calm.set()


async def _calm_down(world: SimWorld, person: Person) -> None:
    """Stop the faults; every turn has to end. Then the client leaves."""
    _let_go(world)
    with anyio.move_on_after(LAST_PART / 2) as limit:
        await world.guests_left()
    if limit.cancelled_caught:
        open_words = [word for word, state in world.record.words.items() if state == "accepted"]
        world.problems.append(f"turns never end: {open_words}\n{describe_tasks(world.loop)}")
    person.settle()
    if not person.closed:
        await person.leave()
    if world.shared is not None:
        world.over.set()
        await world.ended.wait()
        world.shared = None


def _machine(world: SimWorld, home: Path) -> Machine:
    loop = asyncio.get_running_loop()
    ids = random.Random(len(world.people))
    return Machine(
        time_ns=lambda: int(world.now() * 1e9),
        monotonic=loop.time,
        random=ids.randbytes,
        disk=sim_disk(world.model, world, world.writers.new()),
        http=lambda environment: SimHttp(world.model, home),
        runner=runner_of(world.commands),
    )


@contextmanager
def _virtual(world: SimWorld) -> Iterator[None]:
    """Inside, the clocks and identifiers of the standard library that are read without a `Machine` are the world's, and
    nothing is logged: faults would fill the log.
    """
    ids = random.Random(7)
    logged = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(time, "time", world.now)
            patch.setattr(time, "monotonic", world.loop.time)
            patch.setattr(time, "sleep", world.loop.jump)
            patch.setattr(os, "urandom", ids.randbytes)
            yield
    finally:
        logging.disable(logged)


def _write_config(world: SimWorld) -> None:
    habits = world.habits
    lines: list[str] = [
        'model = "gpt-5.1-codex"' if habits.terminals else 'model = "scripted"',
        'model_provider = "sim"',
        f'approval_policy = "{habits.approval_policy}"',
        f'sandbox_mode = "{habits.sandbox_mode}"',
    ]
    if habits.context_window is not None:
        lines.append(f"model_context_window = {habits.context_window}")
    if habits.terminals:
        lines += ["[features]", "unified_exec = true"]
    lines += [
        "[model_providers.sim]",
        'name = "Sim"',
        'base_url = "http://model.invalid/v1"',
        'wire_api = "responses"',
        f"request_max_retries = {habits.retries}",
        f"stream_max_retries = {habits.retries}",
    ]
    if habits.mcp:
        lines += ["[mcp_servers.notes]", 'command = "/bin/notes"', "tool_timeout_sec = 40"]
    (world.home / "config.toml").write_text("\n".join(lines) + "\n")
