"""The coordinator: gives tasks to workers and leases to their requests, stores what comes back, and knows when to stop.
It is the one writer of the batch's folder.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from typing import Final

import anyio
from msgspec import Struct, structs

from app_server.batch import messages
from app_server.batch.budget import Ledger
from app_server.batch.local import Workers
from app_server.batch.out_folder import EVENTS, HOMES, PATCHES, OutFolder
from app_server.batch.progress import Progress
from app_server.batch.repositories import commit_key
from app_server.batch.results import Journal, Result, Results, priced
from app_server.batch.scheduler import Scheduler
from app_server.batch.tasks import Task, file_name
from app_server.client.command_line import ENDING
from app_server.core.threads import run_in_thread

INTERRUPTS_WITHIN: Final = 10.0
"""Seconds for running turns to be interrupted and stored."""
LOOKS_EVERY: Final = 0.5

COMPLETED, OTHERS, BUDGET, STOPPED, INTERRUPTED = 0, 1, 3, 4, 130
"""Exit statuses."""


class Stop(Struct, frozen=True):
    """Why a batch ends before all tasks have a result."""

    status: int
    reason: str


class Coordinator:
    """One run of a batch."""

    def __init__(
        self,
        out: OutFolder,
        results: Results,
        journal: Journal,
        scheduler: Scheduler,
        ledger: Ledger,
        workers: Workers,
        progress: Progress,
    ) -> None:
        self._out, self._results, self._journal = out, results, journal
        self._scheduler, self._ledger = scheduler, ledger
        self._workers, self._progress = workers, progress
        self._clock, self._storing = anyio.current_time, anyio.Lock()
        self._tasks: Mapping[str, Task] = {}
        self._commits: Mapping[str, str] = {}
        self._nodes: dict[int, str] = {}
        """The machines of the workers that are ready."""
        self._pending: list[tuple[messages.Ended, str]] = []
        """What is to be stored, and from which machine it is."""
        self._until = float("inf")
        self.stop: Stop | None = None

    async def run(
        self, setup: messages.Setup, tasks: Mapping[str, Task], commits: Mapping[str, str], jobs: int
    ) -> None:
        """Run until all tasks have a result, or something stops the batch. Raises WorkersFailed and OSError."""
        self._tasks, self._commits = tasks, commits
        async with anyio.create_task_group() as group, self._workers.open(setup) as said:
            group.start_soon(self._heed_signals)
            group.start_soon(self._show)
            while not self._scheduler.over and self._clock() < self._until:
                self._start_tasks(jobs)
                with anyio.move_on_after(self._wakes_in()):
                    self._take(*await said.receive())
                while said.statistics().current_buffer_used:
                    self._take(*said.receive_nowait())
                self._let_pass()
                if self._pending:
                    group.start_soon(self._store)
                self._look_for_stops()
            await self._store()
            group.cancel_scope.cancel()

    def _start_tasks(self, jobs: int) -> None:
        """Give every worker what it can take, the idle ones first."""
        busy = Counter(each.worker for each in self._scheduler.running.values())
        most = -(-jobs // self._workers.count)
        while busy.total() < jobs and (free := [each for each in self._nodes if busy[each] < most]):
            worker = min(free, key=busy.__getitem__)
            task = self._scheduler.next(worker, self._clock())
            if task is None:
                return
            busy[worker] += 1
            commit = self._commits.get(commit_key(task) or "")
            self._workers.send(worker, messages.Run(task=task, commit=commit))

    def _wakes_in(self) -> float:
        now = self._clock()
        soonest = min(self._scheduler.wakes_in(now), self._ledger.wait(now), self._until - now)
        return min(max(soonest, 0.001), LOOKS_EVERY)

    def _take(self, worker: int, message: messages.FromWorker | None) -> None:
        now = self._clock()
        match message:
            case messages.Ready(node=node):
                self._nodes[worker] = node
                self._out.link_threads(node)
            case None:
                node = self._nodes.pop(worker, "")
                self._ledger.gone(worker)
                lost = self._scheduler.gone(worker, now)
                self._pending += [(messages.Ended(outcome=each), node) for each in lost]
            case messages.Ask():
                self._ledger.ask(worker, message)
            case messages.Over():
                id = self._ledger.over(worker, message, now)
                if id is not None:
                    self._journal.spent(id, message.model, message.usage)
            case messages.Ended(outcome=outcome):
                running = self._scheduler.running.get(outcome.id)
                if running is not None and running.worker == worker:  # else it was given to another one
                    self._ended(message, self._nodes[worker], now)

    def _ended(self, message: messages.Ended, node: str, now: float) -> None:
        error = message.outcome.error
        if message.ending == "refused":
            self._stop_now(Stop(STOPPED, f"the provider refuses the login: {error.message if error else ''}"))
        if self._scheduler.ended(message, now):
            self._pending.append((message, node))

    def _let_pass(self) -> None:
        for worker, ask, answer in self._ledger.answers(self._clock()):
            if ask.first and not answer.never:
                self._journal.reached(ask.id)
            self._workers.send(worker, answer)

    async def _store(self) -> None:
        """Store the results that have come: first their files, then their lines, all with one sync."""
        async with self._storing:
            pending, self._pending = self._pending, []
            if not pending:
                return
            try:
                results = await run_in_thread(lambda: [self._with_files(*each) for each in pending])
                await run_in_thread(self._results.append, results)
            except OSError as error:
                why = error.strerror or error
                self._stop_now(Stop(STOPPED, f"{self._out.path} cannot be written any more: {why}"))
                return
            for result in results:
                self._progress.ended(result)

    def _with_files(self, ended: messages.Ended, node: str) -> Result:
        """Write what belongs to a result, and return its line."""
        outcome = ended.outcome
        task, name = self._tasks[outcome.id], file_name(outcome.id)
        patch = f"{PATCHES}/{name}.diff" if ended.patch else None
        if patch is not None:
            self._out.write(patch, ended.patch)
        if ended.events:
            self._out.write(f"{EVENTS}/{name}.jsonl", ended.events)
        if ended.rollout is not None:
            self._out.write(f"{HOMES}/{node}/{ended.rollout[0]}", ended.rollout[1])
        return Result(
            **structs.asdict(outcome),
            attempts=self._journal.attempts[task.id],
            patch=patch,
            usage=priced(self._journal.usage.get(task.id, {}), self._ledger.limits.prices),
            node=node,
            meta=task.meta,
        )

    # --- stopping
    def _look_for_stops(self) -> None:
        if self.stop is None and self._scheduler.failing:
            self.stop = Stop(STOPPED, "too many tasks have failed in a row")
        if self.stop is None and self._ledger.exhausted:
            self.stop = Stop(BUDGET, "a budget of the whole batch is used up")
        if self.stop is not None:
            self._scheduler.closed = True

    def _stop_now(self, stop: Stop) -> None:
        """Start nothing more, and interrupt what runs."""
        self.stop = self.stop or stop
        self._scheduler.closed = True
        self._until = min(self._until, self._clock() + INTERRUPTS_WITHIN)
        for each in self._nodes:
            self._workers.send(each, messages.InterruptTasks())

    async def _heed_signals(self) -> None:
        """The first signal starts nothing more, the second interrupts what runs, the third ends the process."""
        stop = Stop(INTERRUPTED, "interrupted")
        with anyio.open_signal_receiver(*ENDING) as signals:
            await anext(signals)
            self.stop = self.stop or stop
            self._scheduler.closed = True
            self._progress.note(
                "nothing new is started, and what runs comes to its end (again: interrupt it)"
            )
            await anext(signals)
            self._progress.note("what runs is interrupted and stored (again: end at once)")
            self._stop_now(stop)
            await anext(signals)
            os._exit(INTERRUPTED)

    async def _show(self) -> None:
        while True:
            self._out.show_running(list(self._scheduler.running))
            self._progress.show(len(self._scheduler.running), self._clock())
            await anyio.sleep(LOOKS_EVERY)
