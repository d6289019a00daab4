"""The pool of supervisors, shortages of resources, and helpers that die."""

import errno
import os
import select
import socket
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from app_server.engine.sandbox.exec import probe
from app_server.engine.sandbox.exec.command_runner import CommandRunner
from app_server.engine.sandbox.exec.launcher_process import LauncherProcess
from app_server.engine.sandbox.exec.probe_folder import ProbeFolder, probe_folder
from app_server.engine.sandbox.launcher import descendants, launcher_wire, stdlib_min, supervisor
from app_server.engine.sandbox.launcher.launcher_main import FREE, MAX_WAITING, SupervisorPool
from app_server.engine.support.engine_errors import CoreError, LaunchError, SandboxShortage
from app_server_protocol.policy import ReadOnly
from app_server_protocol.values import replace
from tests.engine.sandbox.conftest import Bench
from tests.support.shortage import open_files
from tests.support.waiting import PATIENCE, until


class Forks:
    """Fake fork that returns process ids. It keeps the supervisor's ends of the sockets, because no process
    takes them.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pid = 100
        self.theirs: list[socket.socket] = []
        pair = stdlib_min.socket.socketpair

        def kept() -> tuple[socket.socket, socket.socket]:
            ours, theirs = pair()
            self.theirs.append(socket.socket(fileno=os.dup(theirs.fileno())))
            return ours, theirs

        monkeypatch.setattr(stdlib_min.socket, "socketpair", kept)

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
    assert [launcher_wire.receive(end) for end in forks.theirs] == [("first", []), ("second", [])]
    for end in forks.theirs:
        end.send(FREE)
        read_all(pool)
    assert not pool.busy
    pool.hand_over("third", [])
    assert launcher_wire.receive(forks.theirs[1]) == ("third", [])
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
    assert launcher_wire.receive(forks.theirs[-1]) == ("command", [])
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
        assert launcher_wire.receive(end) is not None
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
            assert launcher_wire.receive(ours) == (("exit", -9, True), [])


def test_nor_where_it_is_given_up_while_it_is_confined(tmp_path: Path) -> None:
    """The process is between fork and exec: the last moment at which a check is possible."""
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


Answer = tuple[object, ...] | None

ALL = b"done\n"
NO_NAMESPACES = ("unavailable", errno.EPERM, "unshare: Operation not permitted")


class ScriptedLauncher(LauncherProcess):
    """Launcher that reports the result of each command from a list; None lets its channel end without a report. Before
    an `exit` it prints `said`.
    """

    def __init__(self, *answers: Answer, said: bytes = ALL) -> None:
        super().__init__("python", {})
        self.answers, self.said, self.asked = list(answers), said, 0
        self.later = said
        """Output of all commands after the first."""

    async def submit(self, request: launcher_wire.Value, descriptors: list[int]) -> None:
        self.asked += 1
        answer = self.answers.pop(0)
        if answer is None:
            return
        if answer[0] == "exit":
            os.write(descriptors[1], self.said if self.asked == 1 else self.later)
            os.write(descriptors[0], launcher_wire.pack(("started", 0)))
        os.write(descriptors[0], launcher_wire.pack(answer))


async def level(launcher: LauncherProcess, home: Path) -> str:
    return (await probe.find_state(launcher, "python", str(home))).level


@pytest.mark.parametrize(
    "answer",
    [
        *(
            (kind, code, os.strerror(code))
            for kind in ("unavailable", "failed")
            for code in (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.EIO, 0)
        ),
        ("unavailable", errno.ECHILD, "the prepared process ended"),
        ("exit", -9, False),
        ("exit", 1, False),
        None,
    ],
)
@pytest.mark.parametrize("before", [[], [NO_NAMESPACES]])
async def test_a_probe_that_ran_out_of_resources_is_inconclusive(
    answer: Answer, before: list[Answer], tmp_path: Path
) -> None:
    """It decides neither for the full sandbox nor for the one without namespaces."""
    launcher = ScriptedLauncher(*before, answer, said=b"see\n")
    with pytest.raises(SandboxShortage, match="try again"):
        await level(launcher, tmp_path)


@pytest.mark.parametrize(
    "code", [errno.EPERM, errno.EACCES, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENODEV]
)
async def test_what_the_kernel_refuses_lowers_the_level(code: int, tmp_path: Path) -> None:
    refused = ("unavailable", code, os.strerror(code))
    assert await level(ScriptedLauncher(refused, ("exit", 0, False)), tmp_path) == "degraded"
    assert await level(ScriptedLauncher(refused, ("failed", code, "landlock")), tmp_path) == "none"


async def test_what_a_probe_could_do_is_no_refusal_of_the_kernel(tmp_path: Path) -> None:
    """The probe may have been misled: it is repeated elsewhere, and never leads to a weaker sandbox."""
    ended = ("exit", 0, False)
    twice = ScriptedLauncher(ended, ended, said=b"metadata\ndone\n")
    assert (await level(twice, tmp_path), twice.asked) == ("none", 2)
    refused = ScriptedLauncher(ended, NO_NAMESPACES, said=b"write\ndone\n")
    assert (await level(refused, tmp_path), refused.asked) == ("none", 2)
    once = ScriptedLauncher(ended, ended, said=b"write\ndone\n")
    once.later = ALL
    assert await level(once, tmp_path) == "full"


async def test_what_a_probe_without_namespaces_could_do_leaves_no_sandbox(tmp_path: Path) -> None:
    launcher = ScriptedLauncher(NO_NAMESPACES, ("exit", 0, False), said=b"write\ndone\n")
    assert await level(launcher, tmp_path) == "none"


def test_a_probe_has_its_folder_in_the_home_where_no_command_writes(tmp_path: Path) -> None:
    with probe_folder(str(tmp_path)) as folder:
        status = os.stat(folder.path)
        assert Path(folder.path).parent == tmp_path / "tmp"
        assert folder.identity == f"{status.st_dev}:{status.st_ino}"
    assert os.listdir(tmp_path / "tmp") == []
    with probe_folder(str(tmp_path), in_home=False) as folder:
        assert not folder.path.startswith(str(tmp_path))
    (tmp_path / "file").touch()
    with probe_folder(str(tmp_path / "file")) as folder:  # the home is a file
        assert os.path.isdir(folder.path)
    assert not os.path.exists(folder.path)


@pytest.mark.skipif(sys.platform != "linux", reason="runs a probe in the Linux sandbox")
async def test_a_folder_that_was_exchanged_proves_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    real = probe_folder

    @contextmanager
    def exchanged(home: str, *, in_home: bool = True) -> Iterator[ProbeFolder]:
        with real(home, in_home=in_home) as folder:
            yield replace(folder, path=str(tmp_path / "other"))

    monkeypatch.setattr(probe, "probe_folder", exchanged)
    with pytest.raises(SandboxShortage, match="exchanged"):
        await bench.sh("true", ReadOnly())
    monkeypatch.setattr(probe, "probe_folder", real)
    assert (await bench.sh("echo fine", ReadOnly())).stdout == b"fine\n"


async def test_no_namespaces_at_all_is_no_shortage_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "_limits", lambda: ["31000", "0"])
    refused = ("unavailable", errno.ENOSPC, "unshare: No space left on device")
    assert await level(ScriptedLauncher(refused, ("exit", 0, False)), tmp_path) == "degraded"


@contextmanager
def scripted(bench: Bench, launcher: ScriptedLauncher) -> Iterator[None]:
    real, sandbox = bench.runner._launcher, bench.runner.sandbox
    bench.runner._launcher = sandbox._launcher = launcher
    yield
    bench.runner._launcher = sandbox._launcher = real


async def test_the_next_command_looks_anew(bench: Bench) -> None:
    with (
        scripted(bench, ScriptedLauncher(("unavailable", errno.EAGAIN, "clone"))),
        pytest.raises(SandboxShortage),
    ):
        await bench.sh("true", ReadOnly())
    assert (await bench.sh("echo fine", ReadOnly())).stdout == b"fine\n"


async def test_a_lower_level_is_kept_and_looked_at_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended, again = ("exit", 0, False), ("unavailable", errno.EAGAIN, "clone")
    launcher = ScriptedLauncher(
        NO_NAMESPACES, ended, again, NO_NAMESPACES, ("failed", errno.EPERM, ""), ended
    )
    with scripted(bench, launcher):
        assert (await bench.runner.sandbox.state()).level == "degraded"
        assert (await bench.runner.sandbox.state()).level == "degraded"
        assert launcher.asked == 2
        monkeypatch.setattr(probe, "RECHECK_SECONDS", -1.0)
        # A shortage, a worse one, then the full sandbox, which is kept.
        for wanted in ("degraded", "degraded", "full", "full"):
            assert (await bench.runner.sandbox.state()).level == wanted
        assert launcher.asked == 6


# --- open files
def opened() -> int:
    return len(os.listdir("/proc/self/fd"))


async def _runs(bench: Bench) -> None:
    await bench.sh("true")


async def _opens(bench: Bench) -> None:
    session = await bench.runner.open_session(bench.spec("true"))
    await session.close()


@pytest.mark.skipif(sys.platform != "linux", reason="counts descriptors in /proc")
@pytest.mark.parametrize("do", [_runs, _opens])
@pytest.mark.parametrize("started", [True, False])
async def test_too_few_open_files_are_an_error_of_the_command(
    bench: Bench, do: Callable[[Bench], Awaitable[None]], started: bool
) -> None:
    if started:
        await bench.sh("true")
    launcher, failures = bench.launcher_pid, list[LaunchError]()
    for more in range(12):
        before = opened()
        try:
            with open_files(more):
                await do(bench)
        except LaunchError as error:
            failures.append(error)
        if launcher == bench.launcher_pid:
            assert opened() == before
    assert failures
    assert all("try again" in str(error) for error in failures)
    if started:
        assert bench.launcher_pid == launcher, "a launcher with commands must not be given up"
    assert (await bench.sh("echo fine")).stdout == b"fine\n"


def test_a_message_whose_descriptors_do_not_fit_leaves_the_next_one_whole() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        launcher_wire.send(ours, "first", [0, 1, 2])
        launcher_wire.send(ours, "second", [])
        with open_files(2), pytest.raises(launcher_wire.Truncated) as caught:
            launcher_wire.receive(theirs)
        assert caught.value.value == "first"
        for number in caught.value.descriptors:
            os.close(number)
        assert launcher_wire.receive(theirs) == ("second", [])


# --- helpers that die
async def test_a_supervisor_that_died_before_the_start_is_an_error(bench: Bench) -> None:
    with scripted(bench, ScriptedLauncher(None)), pytest.raises(LaunchError, match="try again"):
        await bench.sh("true")


@pytest.mark.parametrize("terminal", [False, True])
async def test_a_command_ends_with_its_helpers(
    bench: Bench, marked: Callable[[str], list[int]], terminal: bool
) -> None:
    """All of them die at once: then only the server can end the command."""
    mark = f"8{os.getpid()}{terminal:d}"
    script = f"setsid sleep {mark} & sleep {mark}; true"
    ended = anyio.Event()

    async def run() -> None:
        if terminal:
            session = await bench.runner.open_session(bench.spec("sh", "-c", script))
            await session.wait_ended()
            assert session.exit_code == 137
            await session.close()
        else:
            assert (await bench.sh(script, timeout_ms=None)).exit_code == 137
        ended.set()

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        await until(lambda: len(marked(mark)) >= 3)
        launcher = bench.launcher_pid
        assert launcher is not None
        for pid in [launcher, *_below(launcher)]:
            if pid not in marked(mark):
                os.kill(pid, 9)
        with anyio.fail_after(PATIENCE):
            await ended.wait()
        await until(lambda: not marked(mark))
    assert (await bench.sh("echo fine")).stdout == b"fine\n"


def _below(pid: int) -> list[int]:
    return descendants.below(pid, descendants.parents())


async def test_the_runner_survives_a_python_that_is_gone(tmp_path: Path) -> None:
    async with CommandRunner("/no/such/python", str(tmp_path), {}) as one:
        with pytest.raises(CoreError):
            one.warm_up()
        with pytest.raises(CoreError):
            await one.sandbox.state()
