"""The order of tasks, and their state after an attempt has ended, or a worker has died."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.cli.batch.batch_tasks import Task
from app_server.cli.batch.scheduler import Scheduler
from app_server.cli.batch.worker_messages import Ended, Ending, Result, Status


@pytest.fixture(autouse=True)
def another_attempt_comes_soon() -> None:
    """Leave the delay before a retry as long as it is, in place of the fixture of the folder."""


def task(id: str, cwd: str | None = None) -> Task:
    return Task(id=id, prompt="x", cwd=cwd)


def ended(id: str, status: Status = "completed", ending: Ending = "final") -> Ended:
    return Ended(result=Result(id=id, status=status), ending=ending)


def scheduler(*tasks: Task, retries: int = 2, stop_after: int | None = None) -> Scheduler:
    return Scheduler(tasks, lambda each: each.cwd, retries=retries, stop_after=stop_after)


def begun(found: Scheduler, worker: int = 0, now: float = 0.0) -> list[str]:
    """Start every task that may run now; return their ids."""
    ids = []
    while (each := found.next(worker, now)) is not None:
        ids.append(each.id)
    return ids


def test_tasks_begin_in_their_order() -> None:
    assert begun(scheduler(task("a"), task("b"), task("c"))) == ["a", "b", "c"]


def test_tasks_of_one_folder_run_one_after_another_in_their_order() -> None:
    found = scheduler(task("a", "/x"), task("b", "/x"), task("c", "/y"), task("d", "/x"))
    assert begun(found) == ["a", "c"]
    assert found.ended(ended("a"), 0)
    assert begun(found) == ["b"]
    assert found.ended(ended("b"), 0)
    assert begun(found) == ["d"]


def test_an_attempt_that_may_do_better_is_made_again_after_a_wait_that_doubles() -> None:
    found = scheduler(task("a"), retries=2)
    begun(found)
    assert not found.ended(ended("a", "failed", "retry"), 10)
    assert (begun(found, now=10.5), found.wakes_in(10.5)) == ([], 0.5)
    assert begun(found, now=11) == ["a"]
    assert not found.ended(ended("a", "failed", "retry"), 20)
    assert found.wakes_in(20) == 2.0
    assert begun(found, now=22) == ["a"]
    assert found.ended(ended("a", "failed", "retry"), 30), "the retries are used up"
    assert found.over


@pytest.mark.parametrize("ending", ["interrupted", "refused"])
def test_what_was_interrupted_or_refused_is_no_result_and_does_not_run_again(ending: Ending) -> None:
    found = scheduler(task("a"))
    begun(found)
    assert not found.ended(ended("a", "failed", ending), 0)
    assert begun(found, now=1000) == []


def test_a_worker_that_dies_takes_only_its_own_tasks_with_it() -> None:
    found = scheduler(task("a"), task("b"), task("c", "/x"))
    for worker in (0, 1, 0):
        found.next(worker, 0)
    assert found.gone(0, 0) == []
    assert set(found.running) == {"b"}
    assert sorted(begun(found, 1, now=5)) == ["a", "c"]


def test_a_task_whose_workers_die_too_often_is_lost() -> None:
    found = scheduler(task("a"), retries=1)
    begun(found)
    assert found.gone(0, 0) == []
    begun(found, now=100)
    [lost] = found.gone(0, 100)
    assert (lost.id, lost.status) == ("a", "lost")
    assert lost.error is not None
    assert "died" in lost.error.message
    assert found.over


def test_failures_in_a_row_stop_the_batch_and_a_success_begins_anew() -> None:
    found = scheduler(*map(task, "abcde"), stop_after=2)
    begun(found)
    found.ended(ended("a", "failed"), 0)
    found.ended(ended("b"), 0)
    found.ended(ended("c", "timedOut"), 0)
    assert not found.failing
    found.ended(ended("d", "checkFailed"), 0)
    assert found.failing


def test_nothing_begins_once_it_is_closed() -> None:
    found = scheduler(task("a"), task("b"))
    found.next(0, 0)
    found.closed = True
    assert begun(found) == []
    assert not found.over
    found.ended(ended("a"), 0)
    assert found.over


@given(st.data())
def test_each_task_ends_once_whatever_happens_to_its_attempts(data: st.DataObject) -> None:
    folders = data.draw(st.lists(st.sampled_from([None, "/x", "/y"]), min_size=1, max_size=12))
    found = scheduler(*(task(str(n), folder) for n, folder in enumerate(folders)), retries=2)
    final: list[str] = []
    now = 0.0
    while not found.over:
        begun(found, data.draw(st.integers(0, 2)), now)
        busy = [each.task.cwd for each in found.running.values() if each.task.cwd]
        assert len(busy) == len(set(busy)), "two tasks run in one folder"
        if not found.running:
            now += found.wakes_in(now)
            continue
        id = data.draw(st.sampled_from(sorted(found.running)))
        match data.draw(st.sampled_from(["final", "retry", "dies"])):
            case "dies":
                final += [each.id for each in found.gone(found.running[id].worker, now)]
            case "retry":
                final += [id] if found.ended(ended(id, "failed", "retry"), now) else []
            case _:
                assert found.ended(ended(id), now)
                final.append(id)
        now += 1
    assert sorted(final) == sorted(str(n) for n in range(len(folders)))
