"""The pool of supervisors: which one takes a command, and who is kept."""

import select
import socket
from collections.abc import Iterator

import pytest

from app_server.core.launcher import wire
from app_server.core.launcher.pool import FREE, MAX_WAITING, SupervisorPool


class Forks:
    """Hands out pids; the supervisor's ends of the sockets are kept, as no process takes them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pid = 100
        self.theirs: list[socket.socket] = []
        pair = socket.socketpair

        def kept() -> tuple[socket.socket, socket.socket]:
            ours, theirs = pair()
            self.theirs.append(theirs.dup())
            return ours, theirs

        monkeypatch.setattr(socket, "socketpair", kept)

    def __call__(self) -> int:
        self.pid += 1
        return self.pid


@pytest.fixture
def forks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Forks]:
    one = Forks(monkeypatch)
    yield one
    for end in one.theirs:
        end.close()


@pytest.fixture
def pool(forks: Forks) -> Iterator[SupervisorPool]:
    one = SupervisorPool(forks, lambda _: None)
    yield one
    one.close_children()


def read_all(pool: SupervisorPool) -> None:
    pool.on_readable(set(select.select(list(pool.busy), [], [], 0)[0]))


def test_the_one_that_was_used_last_takes_the_next_command(pool: SupervisorPool, forks: Forks) -> None:
    pool.hand_over("first", [])
    pool.hand_over("second", [])
    assert forks.pid == 102
    assert [wire.receive(end) for end in forks.theirs] == [("first", []), ("second", [])]
    for end in forks.theirs:
        end.send(FREE)
        read_all(pool)
    assert not pool.busy
    pool.hand_over("third", [])
    assert wire.receive(forks.theirs[1]) == ("third", [])
    assert forks.pid == 102


def test_one_is_forked_ahead_where_nobody_waits(pool: SupervisorPool, forks: Forks) -> None:
    pool.hand_over("command", [])
    assert forks.pid == 101
    pool.replace()
    pool.replace()
    assert forks.pid == 102
    pool.hand_over("another", [])
    assert pool.wanting
    assert forks.pid == 102


def test_none_is_forked_before_the_first_command(pool: SupervisorPool, forks: Forks) -> None:
    assert not pool.wanting
    pool.replace()
    assert not pool.pids
    assert forks.pid == 100


def test_the_pool_skips_processes_that_have_ended(pool: SupervisorPool, forks: Forks) -> None:
    pool.hand_over("left something behind", [])
    pool.replace()
    for end in forks.theirs:
        end.close()
    read_all(pool)
    assert not pool.busy
    pool.hand_over("command", [])
    assert wire.receive(forks.theirs[-1]) == ("command", [])
    assert forks.pid == 103


def test_few_are_kept_after_many_at_once(pool: SupervisorPool, forks: Forks) -> None:
    for _ in range(MAX_WAITING + 2):
        pool.hand_over("command", [])
    for end in forks.theirs:
        end.send(FREE)
    read_all(pool)
    assert (len(pool.waiting), pool.busy) == (MAX_WAITING, {})
    closed = 0
    for end in forks.theirs:
        assert wire.receive(end) is not None
        end.setblocking(False)
        try:
            closed += end.recv(1) == b""
        except BlockingIOError:
            pass
    assert closed == 2


def test_a_failed_fork_is_reported_and_retried(forks: Forks) -> None:
    outcomes: list[OSError | int] = [*(OSError(11, "no more processes") for _ in range(4)), 7]

    def fork() -> int:
        outcome = outcomes.pop(0)
        if isinstance(outcome, OSError):
            raise outcome
        return outcome

    pool = SupervisorPool(fork, lambda _: None)
    for _ in range(2):
        with pytest.raises(OSError, match="no more processes"):
            pool.hand_over("command", [])
        pool.replace()
        assert pool.wanting
    pool.hand_over("command", [])
    assert pool.pids == {7}
    pool.close_children()
