"""The pool of supervisors: which one takes a command, who ends with it, and that what was given up never begins."""

import os
import select
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app_server.core.exec.probing import ABANDONED_SECONDS, FOLDER_PREFIX, sweep
from app_server.core.launcher import supervisor, wire
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


def request(path: Path) -> dict[str, Any]:
    return {
        "cwd": b"/",
        "exact_cwd": False,
        "env": {},
        "argv": [b"/bin/touch", bytes(path)],
        "tty": False,
        "background": True,
    }


@pytest.mark.parametrize("how", [socket.SHUT_WR, None])
def test_it_is_reported_as_killed(how: int | None, tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    if how is None:
        ours.close()
    else:
        ours.shutdown(how)
    stdio = [os.open(os.devnull, os.O_RDWR) for _ in range(2)]
    supervisor.supervise(
        request(tmp_path / "late"), [theirs.detach(), *stdio], supervisor.watch_children(), None, whole=False
    )
    assert not (tmp_path / "late").exists()
    if how is not None:
        with ours:
            assert ours.recv(100) == wire.pack(("exit", -9, True))


def test_nor_where_it_is_given_up_while_it_is_confined(tmp_path: Path) -> None:
    """Between fork and exec, the last moment at which anybody can look."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        stdio = [os.open(os.devnull, os.O_RDWR) for _ in range(2)]
        child = supervisor.start(
            request(tmp_path / "late"), stdio, lambda: ours.shutdown(socket.SHUT_WR), theirs.fileno()
        )
        _, status = os.waitpid(child, 0)
        for number in stdio:
            os.close(number)
    assert os.waitstatus_to_exitcode(status) == 137
    assert not (tmp_path / "late").exists()


def test_a_command_whose_server_is_alive_runs(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        stdio = [os.open(os.devnull, os.O_RDWR) for _ in range(2)]
        child = supervisor.start(request(tmp_path / "made"), stdio, lambda: None, theirs.fileno())
        _, status = os.waitpid(child, 0)
        for number in stdio:
            os.close(number)
    assert status == 0
    assert (tmp_path / "made").exists()


def test_only_old_and_empty_folders_of_probes_are_removed(tmp_path: Path) -> None:
    now = 1_000_000.0

    def folder(name: str, age: float) -> Path:
        made = tmp_path / name
        made.mkdir()
        os.utime(made, (now - age, now - age))
        return made

    old = folder(FOLDER_PREFIX + "old", ABANDONED_SECONDS + 1)
    kept = [folder(FOLDER_PREFIX + "new", 1), folder("others", ABANDONED_SECONDS + 1)]
    full = folder(FOLDER_PREFIX + "full", 0)
    (full / "file").touch()
    os.utime(full, (1, 1))
    link = tmp_path / (FOLDER_PREFIX + "link")
    link.symlink_to(kept[1])
    sweep(str(tmp_path), now)
    assert not old.exists()
    assert all(path.exists() for path in (*kept, full, link))


def test_a_folder_that_cannot_be_read_is_no_error(tmp_path: Path) -> None:
    sweep(str(tmp_path / "missing"), 0.0)
