"""The coordinator: passes tasks to workers and leases to their requests, stores the results, and decides when to stop.
It is the only writer of the batch's folder.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from typing import Final

import anyio
from msgspec import Struct

from app_server.cli.batch import worker_messages
from app_server.cli.batch.budget import LONGEST_PAUSE, NO_LIMIT, Ledger
from app_server.cli.batch.local import Workers
from app_server.cli.batch.out_folder import OutFolder, Results
from app_server.cli.batch.progress import Progress
from app_server.cli.batch.scheduler import Scheduler
from app_server.client.command_line import ENDING, INTERRUPTED
from app_server.engine.support.worker_threads import run_in_thread
from app_server_protocol.values import replace

INTERRUPTS_WITHIN: Final = 10.0
"""Timeout for interrupting and storing running turns, in seconds."""
SHOWS_EVERY: Final = 0.5
GATHERS_FOR: Final = 0.05
"""Time in which results are collected before they are stored with one sync, in seconds."""

COMPLETED, OTHERS, BUDGET, STOPPED = 0, 1, 3, 4
"""Exit statuses."""


class Stop(Struct, frozen=True):
    """Reason why a batch ends before all tasks have a result."""

    status: int
    reason: str


class Coordinator:
    """One run of a batch."""

    def __init__(
        self,
        out: OutFolder,
        results: Results,
        scheduler: Scheduler,
        ledger: Ledger,
        workers: Workers,
        progress: Progress,
    ) -> None:
        self._out, self._results = out, results
        self._scheduler, self._ledger = scheduler, ledger
        self._workers, self._progress = workers, progress
        self._clock, self._storing = anyio.current_time, anyio.Lock()
        self._woken, self._fresh = anyio.Event(), anyio.Event()
        """Events: the run has ended or its waiting time has changed; there are results to store."""
        self._jobs = 0
        self._nodes: dict[int, str] = {}
        """Machine names of the workers that are ready, by worker number."""
        self._asking: dict[str, int] = {}
        """Number of the worker that has a request of a task waiting or under way, by task id."""
        self._pending: list[tuple[worker_messages.Ended, bool]] = []
        """Attempts that have to be stored, each with whether it is the task's result."""
        self._until = NO_LIMIT
        self.stop: Stop | None = None

    async def run(self, setup: worker_messages.Setup, jobs: int) -> None:
        """Run until all tasks have a result, or until the batch is stopped. Raises ServerEnded and OSError."""
        self._jobs = jobs
        async with anyio.create_task_group() as group, self._workers.open(setup, self._hear):
            for each in (self._heed_signals, self._show, self._store_in_rounds):
                group.start_soon(each)
            while self._goes_on():
                self._woken = anyio.Event()
                with anyio.move_on_after(self._wakes_in()):
                    await self._woken.wait()
            await self._store()
            group.cancel_scope.cancel()

    def _goes_on(self) -> bool:
        """Do the work that is possible now: answer requests, start tasks. Return whether the run continues."""
        self._let_pass()
        if self._scheduler.failing:
            self._close(Stop(STOPPED, "too many tasks have failed in a row"))
        elif self._ledger.exhausted:
            self._close(Stop(BUDGET, "a budget of the whole batch is used up"))
        self._start_tasks()
        return not self._scheduler.over and self._clock() < self._until

    def _start_tasks(self) -> None:
        """Pass tasks to every worker up to its share, the idle ones first."""
        jobs, busy = self._jobs, Counter(each.worker for each in self._scheduler.running.values())
        most = -(-jobs // self._workers.count)
        while busy.total() < jobs and (free := [each for each in self._nodes if busy[each] < most]):
            worker = min(free, key=busy.__getitem__)
            task = self._scheduler.next(worker, self._clock())
            if task is None:
                return
            busy[worker] += 1
            self._workers.send(worker, worker_messages.Run(task))

    def _wakes_in(self) -> float:
        now = self._clock()
        return max(min(self._scheduler.wakes_in(now), self._ledger.wait(now), self._until - now), 0.001)

    def _hear(self, worker: int, message: worker_messages.FromWorker | None) -> None:
        """Handle a message of a worker. None says that it died. Raises WrongMessage if the worker may not send the
        message.
        """
        now = self._clock()
        match message:
            case worker_messages.Ready(node=node):
                if worker in self._nodes:
                    raise worker_messages.WrongMessage("it is ready already")
                self._nodes[worker] = node
                self._out.link_threads(node)
            case None:
                self._lose(worker, now)
            case worker_messages.Ask(id=id):
                self._scheduler.require_running(worker, id)
                self._asking[id] = worker
                self._ledger.ask(message)
            case worker_messages.Over():
                self._end_request(worker, message, now)
            case worker_messages.Ended(result=result, ending=ending):
                self._scheduler.require_running(worker, result.id)
                # The coordinator knows these fields better than the worker.
                result.node, result.patch = self._nodes[worker], None
                result.meta = self._scheduler.running[result.id].task.meta
                if ending == "refused":
                    why = result.error.message if result.error else ""
                    self._stop_now(Stop(STOPPED, f"the provider refuses the login: {why}"))
                self._pending.append((message, self._scheduler.ended(message, now)))
        self._woken.set()
        if self._pending or self._results.notes:
            self._fresh.set()

    def _end_request(self, worker: int, over: worker_messages.Over, now: float) -> None:
        """Handle the end of a request."""
        if self._asking.get(over.id) != worker:
            raise worker_messages.WrongMessage("a request is over that was not asked for")
        del self._asking[over.id]
        if (usage := self._ledger.over(over, now)) is not None:
            self._results.took(over.id, over.model, usage)
        if over.limited and (over.retry_after or 0.0) > LONGEST_PAUSE:
            why = f"the provider asks to wait {over.retry_after:.6g} s, which is not waited for"
            self._stop_now(Stop(STOPPED, why))
        elif over.limited:
            self._progress.pause(self._ledger.held_for(now), now)

    def _lose(self, worker: int, now: float) -> None:
        """Handle the death of a worker."""
        node = self._nodes.pop(worker, "")
        asking = [id for id, asker in self._asking.items() if asker == worker]
        self._ledger.gone(asking)
        for id in asking:
            del self._asking[id]
        for lost in self._scheduler.gone(worker, now):
            self._pending.append((worker_messages.Ended(result=replace(lost, node=node)), True))

    def _let_pass(self) -> None:
        answers = list(self._ledger.answers(self._clock()))
        reached = [ask.id for ask, answer in answers if ask.first and not answer.never]
        self._results.reached(reached)  # before the answer is sent, so that no attempt is forgotten
        for ask, answer in answers:
            self._workers.send(self._asking[ask.id], answer)

    async def _store_in_rounds(self) -> None:
        while True:
            await self._fresh.wait()
            self._fresh = anyio.Event()
            await anyio.sleep(GATHERS_FOR)
            await self._store()

    async def _store(self) -> None:
        """Store the results that have arrived: first their files, then their lines, all with one sync."""
        async with self._storing:
            pending, self._pending = self._pending, []
            try:
                self._results.write_notes()
                if pending:
                    await run_in_thread(self._write, pending)
            except OSError as error:
                why = error.strerror or error
                self._stop_now(Stop(STOPPED, f"{self._out.path} cannot be written any more: {why}"))
                return
            for ended, final in pending:
                if final:
                    self._progress.tell("taskEnded", ended.result)

    def _write(self, pending: Sequence[tuple[worker_messages.Ended, bool]]) -> None:
        for ended, final in pending:
            self._out.write_files(ended, final=final)
        self._out.sync()
        if results := [ended.result for ended, final in pending if final]:
            self._results.append(results)

    # --- stopping
    def _close(self, stop: Stop) -> None:
        """Stop starting tasks; the first reason counts."""
        self.stop = self.stop or stop
        self._scheduler.closed = True

    def _stop_now(self, stop: Stop) -> None:
        """Stop starting tasks, and interrupt the running ones."""
        self._close(stop)
        self._until = min(self._until, self._clock() + INTERRUPTS_WITHIN)
        self._woken.set()
        for each in self._nodes:
            self._workers.send(each, worker_messages.InterruptTasks())

    async def _heed_signals(self) -> None:
        """Handle signals: the first one stops starting tasks, the second interrupts the running ones, the third ends
        the process.
        """
        stop = Stop(INTERRUPTED, "interrupted")
        with anyio.open_signal_receiver(*ENDING) as signals:
            await anext(signals)
            self._close(stop)
            self._woken.set()
            self._progress.note(
                "nothing new is started, and what runs comes to its end (again: interrupt it)"
            )
            await anext(signals)
            self._progress.note("what runs is interrupted and stored (again: end at once)")
            self._stop_now(stop)
            await anext(signals)
            os._exit(INTERRUPTED)

    async def _show(self) -> None:
        shown = -1
        while True:
            if (running := len(self._scheduler.running)) != shown:
                self._out.show_running(running)
                shown = running
            self._progress.show(running, self._clock())
            await anyio.sleep(SHOWS_EVERY)
