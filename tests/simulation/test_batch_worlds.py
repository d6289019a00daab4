"""Batches in virtual time: the real coordinator, with workers that die, attempts that fail, a provider that asks for
fewer requests, and a coordinator that is killed and started again, with its last line torn.
"""

import asyncio
import io
import os
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import pytest
from anyio.abc import TaskGroup

from app_server.cli.batch import worker_messages
from app_server.cli.batch.batch_tasks import Task
from app_server.cli.batch.budget import Ledger, SharedLimits
from app_server.cli.batch.coordinator import BUDGET, Coordinator, Stop
from app_server.cli.batch.local import Hear, Workers
from app_server.cli.batch.out_folder import RESULTS, BatchFile, OutFolder, Results, read_lines
from app_server.cli.batch.progress import Progress
from app_server.cli.batch.scheduler import Scheduler
from app_server.engine.config.config_values import CliOverrides
from app_server_protocol.framing import Transport
from tests.simulation.draws import Draws
from tests.simulation.loop import SimLoop, threads_in_the_loop

pytestmark = pytest.mark.simulation

LONG = os.environ.get("FAULTS") == "long"
TOKENS = 100
"""Tokens of a request."""


@dataclass(slots=True)
class World:
    """State that the workers of all runs share: the provider, and the record."""

    draws: Draws
    folder: Path
    count: int
    limits: SharedLimits = field(default_factory=SharedLimits)
    jobs: int = 8
    retries: int = 3
    deaths: float = 0.0
    """Mean time until a worker dies, in virtual seconds. 0 if workers do not die."""
    refused: tuple[float, float] = (0.0, 0.0)
    """Interval in which the provider refuses requests."""
    kills: int = 0
    """Number of times that the coordinator is killed."""
    sent: list[float] = field(default_factory=list)
    asked: Counter[str] = field(default_factory=Counter)
    """Number of answered requests, by task."""
    failed: set[str] = field(default_factory=set)
    """Tasks with a failed attempt."""
    problems: list[str] = field(default_factory=list)
    busy: set[str] = field(default_factory=set)
    most_at_once: int = 0
    seconds: float = 0.0
    """Virtual time that has passed, in seconds."""

    def tasks(self) -> list[Task]:
        return [
            Task(id=f"t{n}", prompt="x", cwd=f"/c{n}" if n % 10 == 0 else None) for n in range(self.count)
        ]

    def final(self) -> list[worker_messages.Result]:
        return [each for each, _ in read_lines(self.folder / RESULTS, worker_messages.Result)]


LONGEST = 24 * 3600.0
"""Time in which each run has to end, in virtual seconds. The coordinator polls for ever, so nothing deadlocks."""


class OverBudget(Exception):
    """A request may never be sent, because a budget of the whole batch is used up."""


class Waiting:
    """A request that waits for its lease."""

    def __init__(self) -> None:
        self.event, self.never = anyio.Event(), False


class SimWorkers(Workers):
    def __init__(self, world: World) -> None:
        super().__init__(3, self.connect)
        self._world = world
        self._hear: Hear
        self._groups: dict[int, TaskGroup] = {}
        self._passes: dict[tuple[int, str], Waiting] = {}

    def connect(self) -> AbstractAsyncContextManager[Transport]:
        raise NotImplementedError

    @asynccontextmanager
    async def open(self, setup: worker_messages.Setup, hear: Hear) -> AsyncIterator[None]:
        self._hear = hear
        async with anyio.create_task_group() as group:
            for number in range(self.count):
                group.start_soon(self._live, number)
            yield
            group.cancel_scope.cancel()

    def send(self, worker: int, message: worker_messages.ToWorker) -> None:
        match message:
            case worker_messages.Run(task=task):
                if worker in self._groups:
                    self._groups[worker].start_soon(self._attempt, worker, task)
            case worker_messages.Pass(id=id, never=never):
                if (waiting := self._passes.get((worker, id))) is not None:
                    waiting.never = never
                    waiting.event.set()
            case _:
                pass

    async def _live(self, number: int) -> None:
        world = self._world
        while True:
            dies = world.deaths * (0.1 + 2 * world.draws.below("death", 1000) / 1000) or 10**9
            with anyio.move_on_after(dies):
                async with anyio.create_task_group() as self._groups[number]:
                    self._hear(number, worker_messages.Ready(f"n{number % 2}"))
                    await anyio.sleep_forever()
            del self._groups[number]
            self._hear(number, None)
            await anyio.sleep(0.5)

    async def _attempt(self, worker: int, task: Task) -> None:
        world, draws = self._world, self._world.draws
        place = task.cwd or task.id
        if place in world.busy:
            world.problems.append(f"two attempts in {place} at once")
        if world.count < 1000 and task.id in {each.id for each in world.final()}:
            world.problems.append(f"{task.id} runs though it has a result")
        world.busy.add(place)
        world.most_at_once = max(world.most_at_once, len(world.busy))
        try:
            for n in range(1 + draws.below("requests", 3)):
                while not await self._request(worker, task, first=n == 0):
                    pass
        except OverBudget:
            ended = worker_messages.Ended(result=worker_messages.Result(id=task.id, status="overBudget"))
            self._hear(worker, ended)
            return
        finally:
            world.busy.remove(place)
        fails = draws.chance("failure", 0.05)
        if fails:
            world.failed.add(task.id)
        result = worker_messages.Result(id=task.id, status="failed" if fails else "completed", node="n")
        thread = f"sessions/{task.id}-{'failed' if fails else 'completed'}.jsonl", b"said\n"
        ended = worker_messages.Ended(result=result, ending="retry" if fails else "final", rollout=thread)
        self._hear(worker, ended)

    async def _request(self, worker: int, task: Task, *, first: bool) -> bool:
        """Send a request; return whether the provider accepted it."""
        world = self._world
        waiting = self._passes[worker, task.id] = Waiting()
        self._hear(worker, worker_messages.Ask(id=task.id, size=TOKENS, first=first))
        await waiting.event.wait()
        if waiting.never:
            raise OverBudget
        world.sent.append(anyio.current_time())
        await anyio.sleep(world.draws.seconds("model", 1.0, 0.2, 5.0))
        begin, end = world.refused
        limited = begin <= anyio.current_time() < end
        usage = worker_messages.TaskUsage(input_tokens=0 if limited else TOKENS, requests=1)
        self._hear(
            worker, worker_messages.Over(id=task.id, model="m", usage=usage, limited=limited, retry_after=2.0)
        )
        if not limited:
            world.asked[task.id] += 1
        return not limited


class Killed(Exception):
    pass


async def one_run(world: World, began: float, killed_at: float | None) -> Stop | None:
    """Run the batch until it ends, or is killed."""
    tasks = world.tasks()
    with OutFolder(world.folder, world.folder / "home") as out:
        doing = worker_messages.Doing(overrides=CliOverrides(), checkout="worktree")
        out.begin(BatchFile(digest="", folder="/", doing=doing), b"")
        results = Results(out.path, [task.id for task in tasks])
        left = [task for task in tasks if task.id not in results.final]
        scheduler = Scheduler(left, lambda task: task.cwd, retries=world.retries)
        ledger = Ledger(world.limits, anyio.current_time(), results.spent)
        progress = Progress(len(tasks), results, ledger, began, io.StringIO(), None)
        coordinator = Coordinator(out, results, scheduler, ledger, SimWorkers(world), progress)
        setup = worker_messages.Setup(
            folder="/",
            out="",
            shared=False,
            doing=doing,
            seconds=60.0,
            keep="none",
        )
        seconds = float("inf") if killed_at is None else killed_at
        with anyio.fail_after(LONGEST), anyio.move_on_after(seconds):
            await coordinator.run(setup, world.jobs)
        world.seconds = anyio.current_time()
        return coordinator.stop


def tear(path: Path, draws: Draws) -> None:
    """Leave of the last line what a crash might leave: all of it, or a piece."""
    content = path.read_bytes() if path.exists() else b""
    if content:
        last = content.rstrip(b"\n").rfind(b"\n") + 1
        path.write_bytes(content[: len(content) - draws.below("torn", len(content) - last)])


def play(world: World) -> Stop | None:
    """Play all runs of a batch."""
    stop: Stop | None = None
    for run in range(world.kills + 1):
        killed_at = None if run == world.kills else 1.0 + world.draws.below("kill", 200)
        loop = SimLoop(world.draws)
        world.busy.clear()
        asyncio.set_event_loop(loop)
        try:
            with threads_in_the_loop(world.draws, (0.0, 0.01), lambda: None):
                stop = loop.run_until_complete(one_run(world, loop.time(), killed_at))
        finally:
            loop.close()
        if killed_at is not None:
            tear(world.folder / "results.jsonl", world.draws)
            tear(world.folder / "attempts.jsonl", world.draws)
    return stop


@pytest.fixture(autouse=True)
def quick_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(os, "fsync", lambda _: None)
    yield
    asyncio.set_event_loop(None)


def every_task_once(world: World) -> None:
    ids = [each.id for each in world.final()]
    assert sorted(ids) == sorted(task.id for task in world.tasks())
    assert world.problems == []
    assert world.most_at_once <= world.jobs


@pytest.mark.parametrize("seed", range(40 if LONG else 8))
def test_each_task_has_one_result_whatever_dies(seed: int, tmp_path: Path) -> None:
    world = World(Draws(seed), tmp_path, count=80, deaths=20.0, kills=3, retries=50)
    assert play(world) is None
    every_task_once(world)
    spent = sum(each.usage.total for each in world.final())
    assert spent <= sum(world.asked.values()) * TOKENS


def test_threads_come_back_of_all_attempts_that_have_ended(tmp_path: Path) -> None:
    world = World(Draws(5), tmp_path, count=80, retries=50)
    assert play(world) is None
    every_task_once(world)
    assert world.failed
    spent = Results(tmp_path, ()).spent.values()
    assert sum(each.total for each in spent) == sum(world.asked.values()) * TOKENS
    stored = {path.name for path in tmp_path.glob("homes/n[01]/sessions/*")}
    failed = {f"{id}-failed.jsonl" for id in world.failed}
    assert stored == failed | {f"{task.id}-completed.jsonl" for task in world.tasks()}


@pytest.mark.skipif(not LONG, reason="FAULTS=long plays it; fewer tasks are played above")
def test_ten_thousand_tasks_and_workers_that_die(tmp_path: Path) -> None:
    world = World(Draws(1), tmp_path, count=10_000, jobs=60, deaths=120.0, kills=2, retries=50)
    assert play(world) is None
    every_task_once(world)


def test_a_provider_that_refuses_for_a_minute_fails_no_task_and_costs_no_attempt(tmp_path: Path) -> None:
    world = World(Draws(2), tmp_path, count=600, jobs=20, refused=(10.0, 70.0), retries=50)
    assert play(world) is None
    every_task_once(world)
    tens = Counter(int(at // 10) for at in world.sent)
    """Number of requests in each ten seconds."""
    while_refused = sum(tens[n] for n in range(2, 7)) / 5
    assert while_refused < tens[0] / 3
    assert max(count for n, count in tens.items() if n >= 7) > while_refused * 3
    failed_first = {id for id, attempts in Results(tmp_path, ()).attempts.items() if attempts > 1}
    assert len(failed_first) < 60, "only those that fail by themselves are tried again"


def test_rates_hold_over_any_minute(tmp_path: Path) -> None:
    world = World(
        Draws(3), tmp_path, count=300, limits=SharedLimits(requests_per_minute=120), deaths=30.0, retries=50
    )
    assert play(world) is None
    every_task_once(world)
    for begin in world.sent:
        in_a_minute = sum(1 for at in world.sent if begin <= at < begin + 60)
        assert in_a_minute <= 120 + 120 * 5 / 60 + 1


def test_a_total_holds_over_all_runs(tmp_path: Path) -> None:
    world = World(Draws(4), tmp_path, count=300, limits=SharedLimits(tokens=10_000), kills=3, retries=50)
    stop = play(world)
    assert stop is not None
    assert stop.status == BUDGET
    assert sum(world.asked.values()) * TOKENS <= 10_000 + world.kills * world.jobs * TOKENS + TOKENS
    ids = [each.id for each in world.final()]
    assert len(ids) == len(set(ids))
