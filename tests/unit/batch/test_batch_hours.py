"""Scheduler, ledger, journal and results together over virtual hours: ten thousand tasks, workers that die, a provider
that refuses, and a batch that is cut off and begun again.
"""

import heapq
import os
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from app_server.batch.budget import Ledger, SharedLimits
from app_server.batch.messages import Ask, Ended, Over, Result, TaskUsage
from app_server.batch.out_folder import RESULTS, Results, read_lines
from app_server.batch.scheduler import Scheduler
from app_server.batch.tasks import Task

JOBS, WORKERS, TOKENS = 64, 4, 500
LIMITS = SharedLimits(requests_per_minute=3000, tokens_per_minute=2_000_000)


class Hours:
    """One run: an event after the other, by their times."""

    def __init__(self, folder: Path, tasks: list[Task], chance: Random) -> None:
        self.chance, self.tasks = chance, {task.id: task for task in tasks}
        self.results = Results(folder, self.tasks)
        left = [task for task in tasks if task.id not in self.results.final]
        self.scheduler = Scheduler(left, lambda task: task.cwd, retries=100)
        self.ledger = Ledger(LIMITS, 0.0, self.results.spent)
        self.events: list[tuple[float, int, str, int, str, int]] = []
        self.now, self.order, self.number = 0.0, 0, 0
        self.sent: list[float] = []
        self.alive = Counter[int]()
        """How often each worker has died."""

    def at(self, seconds: float, what: str, worker: int, id: str = "", number: int = 0) -> None:
        self.order += 1
        heapq.heappush(self.events, (self.now + seconds, self.order, what, worker, id, number))

    def play(self, until: float) -> None:
        """Go on until all tasks have a result, or the run is cut off."""
        for worker in range(WORKERS):
            self.at(self.chance.expovariate(1 / 60), "dies", worker)
        pending: list[Result] = []
        while not self.scheduler.over and self.now < until:
            self.begin_tasks()
            for worker, ask, _ in self.ledger.answers(self.now):
                if ask.first:
                    self.results.reached([ask.id])
                self.sent.append(self.now)
                self.at(self.chance.uniform(0.2, 2), "answered", worker, ask.id, ask.number)
            next_event = self.events[0][0] - self.now if self.events else float("inf")
            step = min(next_event, max(self.ledger.wait(self.now), 0.001), self.scheduler.wakes_in(self.now))
            self.now += max(step, 0.0)
            while self.events and self.events[0][0] <= self.now:
                pending += self.happen(*heapq.heappop(self.events)[2:])
            if len(pending) >= 50 or self.scheduler.over:
                self.results.write_notes()
                self.results.append(pending)
                pending = []

    def begin_tasks(self) -> None:
        while len(self.scheduler.running) < JOBS:
            worker = self.chance.randrange(WORKERS)
            task = self.scheduler.next(worker, self.now)
            if task is None:
                return
            self.ask(worker, task.id, first=True)

    def ask(self, worker: int, id: str, *, first: bool = False) -> None:
        self.number += 1
        self.ledger.ask(worker, Ask(number=self.number, id=id, size=TOKENS, first=first))

    def happen(self, what: str, worker: int, id: str, number: int) -> list[Result]:
        if what == "dies":
            self.ledger.gone(worker)
            self.at(self.chance.expovariate(1 / 60), "dies", worker)
            return self.scheduler.gone(worker, self.now)
        limited = 100 <= self.now < 160
        usage = TaskUsage(input_tokens=0 if limited else TOKENS, requests=1)
        over = Over(number=number, model="m", usage=usage, limited=limited, retry_after=1.0)
        if self.ledger.over(worker, over, self.now) is None:
            return []  # its worker has died
        self.results.took(id, "m", usage)
        if limited or self.chance.random() < 0.3:
            self.ask(worker, id)
            return []
        ended = Ended(result=Result(id=id, status="completed"))
        return [ended.result] if self.scheduler.ended(ended, self.now) else []


@pytest.mark.parametrize("seed", [1, 2])
def test_ten_thousand_tasks(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)
    chance = Random(seed)
    tasks = [Task(id=f"t{n}", prompt="x", cwd=f"/c{n % 50}" if n % 9 == 0 else None) for n in range(10_000)]
    for until in (90.0, 300.0, float("inf")):
        run = Hours(tmp_path, tasks, chance)
        run.play(until)
        for path in (tmp_path / RESULTS, tmp_path / "attempts.jsonl"):
            content = path.read_bytes()
            path.write_bytes(content[: -chance.randrange(1, 40)] if until != float("inf") else content)
        minutes = Counter(int(at // 60) for at in run.sent)
        assert max(minutes.values()) <= 3000 + 250 + 1, "more requests a minute than allowed"
    stored = [each for each, _ in read_lines(tmp_path / RESULTS, Result)]
    assert Counter(each.id for each in stored) == Counter(task.id for task in tasks)
    assert {each.status for each in stored} == {"completed"}
    spent = sum(each.total for each in run.results.spent.values())
    assert spent == pytest.approx(sum(each.usage.total for each in stored), rel=0.05)
