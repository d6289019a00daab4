"""A moment in which something is short, or a helper dies, costs one command an error and lowers nothing for good."""

import errno
import os
import socket
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from app_server.core.errors import CoreError, LaunchError, SandboxShortage
from app_server.core.exec import probing
from app_server.core.exec.launcher_process import LauncherProcess
from app_server.core.exec.runner import CommandRunner
from app_server.core.launcher import descendants, wire
from protocol.policy import ReadOnly
from tests.support.shortage import open_files
from tests.support.waiting import PATIENCE, until
from tests.unit.exec.conftest import Bench

Answer = tuple[object, ...] | None

ALL = b"done\n"
NO_NAMESPACES = ("unavailable", errno.EPERM, "unshare: Operation not permitted")


class ScriptedLauncher(LauncherProcess):
    """Reports from a list what came of each victim; None lets its channel end without a word. An `exit` printed `said`
    before.
    """

    def __init__(self, *answers: Answer, said: bytes = ALL) -> None:
        super().__init__("python", {})
        self.answers, self.said, self.asked = list(answers), said, 0

    async def submit(self, request: wire.Value, descriptors: list[int]) -> None:
        self.asked += 1
        answer = self.answers.pop(0)
        if answer is None:
            return
        if answer[0] == "exit":
            os.write(descriptors[1], self.said)
            os.write(descriptors[0], wire.pack(("started", 0)))
        os.write(descriptors[0], wire.pack(answer))


async def level(launcher: LauncherProcess, home: Path) -> str:
    return (await probing.find_state(launcher, "python", str(home))).level


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
    """Neither for the full sandbox nor for the one without namespaces."""
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


async def test_what_the_victim_could_do_lowers_the_level(tmp_path: Path) -> None:
    ended = ("exit", 0, False)
    assert await level(ScriptedLauncher(ended, ended, said=b"metadata\ndone\n"), tmp_path) == "degraded"
    assert await level(ScriptedLauncher(ended, ended, said=b"write\ndone\n"), tmp_path) == "none"


async def test_no_namespaces_at_all_is_no_shortage_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probing, "_limits", lambda: ["31000", "0"])
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
        monkeypatch.setattr(probing, "RECHECK_SECONDS", -1.0)
        for wanted in ("degraded", "degraded", "full", "full"):  # short of something, even less, full, kept
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
    launcher, failures = bench.runner.launcher_pid, list[LaunchError]()
    for more in range(12):
        before = opened()
        try:
            with open_files(more):
                await do(bench)
        except LaunchError as error:
            failures.append(error)
        if launcher == bench.runner.launcher_pid:
            assert opened() == before
    assert failures
    assert all("try again" in str(error) for error in failures)
    if started:
        assert bench.runner.launcher_pid == launcher, "a launcher with commands must not be given up"
    assert (await bench.sh("echo fine")).stdout == b"fine\n"


def test_a_message_whose_descriptors_do_not_fit_leaves_the_next_one_whole() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        wire.send(ours, "first", [0, 1, 2])
        wire.send(ours, "second", [])
        with open_files(2), pytest.raises(wire.Truncated) as caught:
            wire.receive(theirs)
        assert caught.value.value == "first"
        for number in caught.value.descriptors:
            os.close(number)
        assert wire.receive(theirs) == ("second", [])


# --- helpers that die
async def test_a_supervisor_that_died_before_the_start_is_an_error(bench: Bench) -> None:
    with scripted(bench, ScriptedLauncher(None)), pytest.raises(LaunchError, match="try again"):
        await bench.sh("true")


@pytest.mark.parametrize("terminal", [False, True])
async def test_a_command_ends_with_its_helpers(
    bench: Bench, marked: Callable[[str], list[int]], terminal: bool
) -> None:
    """All of them at once: then nobody but the server can end it."""
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
        launcher = bench.runner.launcher_pid
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
    async with CommandRunner("/no/such/python", str(tmp_path), None, {}) as one:
        with pytest.raises(CoreError):
            one.warm_up()
        with pytest.raises(CoreError):
            await one.sandbox.state()
