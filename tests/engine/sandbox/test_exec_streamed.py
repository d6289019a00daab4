"""Commands whose output is streamed, with input or a terminal, and the folder in which they run."""

import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio
import pytest

from app_server.engine.sandbox.exec import streams
from app_server.engine.sandbox.exec.command import CommandSpec, ExecResult
from app_server.engine.sandbox.exec.command_process import Process, TerminalSize, hand_on
from app_server.engine.sandbox.exec.pty import PtySession
from app_server.engine.sandbox.exec.streams import StdinWriter
from app_server.engine.support.engine_errors import CoreError, InputClosed, InputFull, LaunchError
from app_server_protocol.engine.item_values import ExecOutputStream
from app_server_protocol.policy import DangerFullAccess, ReadOnly, SandboxPolicy
from app_server_protocol.values import replace
from tests.engine.sandbox.conftest import Bench
from tests.support.waiting import until


class Running:
    """Command in its task, and its received output."""

    def __init__(self, command: Process) -> None:
        self.command = command
        self.code: int | None = None
        self.heard = dict.fromkeys(ExecOutputStream, b"")
        self.slow: anyio.Event | None = None
        self._more = anyio.Event()

    async def run(self, timeout_ms: int | None) -> None:
        self.code = await hand_on(self.command, self._take, timeout_ms)
        self._more.set()

    async def _take(self, stream: ExecOutputStream, chunk: bytes) -> None:
        self.heard[stream] += chunk
        self._more.set()
        self._more = anyio.Event()
        if self.slow is not None:
            await self.slow.wait()

    async def until(self, words: bytes, stream: ExecOutputStream = ExecOutputStream.STDOUT) -> None:
        with anyio.fail_after(20):
            while words not in self.heard[stream]:
                await self._more.wait()

    async def ended(self) -> int:
        with anyio.fail_after(20):
            while self.code is None:
                await self._more.wait()
                self._more = anyio.Event()
        return self.code

    @property
    def stdin(self) -> StdinWriter:
        assert self.command.stdin is not None
        return self.command.stdin


@asynccontextmanager
async def running(
    bench: Bench,
    spec: CommandSpec,
    *,
    stdin: bool = True,
    terminal: TerminalSize | None = None,
    timeout_ms: int | None = None,
) -> AsyncIterator[Running]:
    one = Running(await bench.runner.open_streamed(spec, stdin=stdin, terminal=terminal))
    async with anyio.create_task_group() as group:
        group.start_soon(one.run, timeout_ms)
        yield one
        group.cancel_scope.cancel()


@pytest.mark.parametrize("policy", [None, ReadOnly()])
async def test_what_is_written_comes_back_until_the_input_ends(
    bench: Bench, policy: SandboxPolicy | None
) -> None:
    spec = bench.spec("sh", "-c", "cat; echo end >&2; exit 3", policy=policy)
    async with running(bench, spec) as one:
        await one.stdin.write(b"hello\n")
        await one.until(b"hello\n")
        await one.stdin.write(b"bye", last=True)
        assert await one.ended() == 3
        assert one.heard == {ExecOutputStream.STDOUT: b"hello\nbye", ExecOutputStream.STDERR: b"end\n"}
        with pytest.raises(InputClosed):
            await one.stdin.write(b"late")


async def test_without_input_there_is_nothing_to_read(bench: Bench) -> None:
    async with running(bench, bench.spec("cat"), stdin=False) as one:
        assert await one.ended() == 0


@pytest.mark.parametrize("typed", [b"word\n", b"word"])
async def test_a_terminal_has_a_size_and_an_end_of_input(bench: Bench, typed: bytes) -> None:
    spec = bench.spec("sh", "-c", "stty size; read a; echo got:$a; stty size; cat; echo end")
    async with running(bench, spec, terminal=(7, 9)) as one:
        await one.until(b"7 9")
        one.command.resize((11, 13))
        await one.stdin.write(b"line\n")
        await one.until(b"got:line")
        await one.until(b"11 13")
        await one.stdin.write(typed, last=True)
        await one.until(b"end")
        assert await one.ended() == 0
        one.command.resize((1, 1))  # the process has ended


async def test_the_time_limit_ends_the_tree(bench: Bench, marked: Callable[[str], list[int]]) -> None:
    mark = uuid.uuid4().hex
    spec = bench.spec("sh", "-c", f": {mark}; echo up; setsid sh -c ': {mark}; sleep 100' & sleep 100")
    async with running(bench, spec, timeout_ms=500) as one:
        assert await one.ended() == 124
        assert one.heard[ExecOutputStream.STDOUT] == b"up\n"
    assert marked(mark) == []


async def test_what_a_command_leaves_behind_ends_with_it(
    bench: Bench, marked: Callable[[str], list[int]]
) -> None:
    mark = uuid.uuid4().hex
    spec = bench.spec("sh", "-c", f"(setsid sh -c ': {mark}; sleep 100' &); echo done")
    async with running(bench, spec) as one:
        assert await one.ended() == 0
        assert marked(mark) == []


async def test_a_caller_that_leaves_ends_the_command(
    bench: Bench, marked: Callable[[str], list[int]]
) -> None:
    mark = uuid.uuid4().hex
    async with running(bench, bench.spec("sh", "-c", f": {mark}; echo up; sleep 100")) as one:
        await one.until(b"up")
    assert marked(mark) == []


async def test_a_command_waits_for_who_takes_its_output(
    bench: Bench, marked: Callable[[str], list[int]]
) -> None:
    mark = uuid.uuid4().hex
    async with running(bench, bench.spec("yes", mark)) as one:
        one.slow = anyio.Event()
        await one.until(mark.encode())
        one.command.kill()
        await until(lambda: not marked(mark))
        taken = len(one.heard[ExecOutputStream.STDOUT])
        one.slow.set()
        assert await one.ended() == 137
        assert taken <= len(one.heard[ExecOutputStream.STDOUT]) < 1 << 20


async def test_input_that_nobody_reads_is_bounded_and_ends_with_the_command(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "MAX_WAITING", 1 << 20)
    refused: list[str] = []

    async def write(one: Running) -> None:
        with pytest.raises(InputClosed):
            await one.stdin.write(b"x" * (600 << 10))
        refused.append("closed")

    async with running(bench, bench.spec("sh", "-c", "echo up; sleep 100")) as one:
        await one.until(b"up")
        async with anyio.create_task_group() as group:
            group.start_soon(write, one)
            await anyio.wait_all_tasks_blocked()
            with pytest.raises(InputFull):
                await one.stdin.write(b"x" * (600 << 10))
            one.command.kill()
            await one.ended()
    assert refused == ["closed"]


async def test_what_cannot_be_started_is_an_error(bench: Bench) -> None:
    async def ignore(stream: ExecOutputStream, chunk: bytes) -> None:
        pass

    command = await bench.runner.open_streamed(bench.spec("/no/such/program"), stdin=True)
    with pytest.raises(LaunchError) as raised:
        await hand_on(command, ignore, None)
    assert raised.value.code == 2


async def read_until(session: PtySession, words: bytes) -> bytes:
    seen = b""
    with anyio.fail_after(10):
        while words not in seen:
            seen += await session.read(0.05)
    return seen


@pytest.mark.parametrize("policy", [None, ReadOnly()])
async def test_a_session_is_written_to_and_answers(bench: Bench, policy: SandboxPolicy | None) -> None:
    spec = bench.spec("sh", "-c", "test -t 0 && echo terminal; read a; echo got:$a; exit 7", policy=policy)
    session = await bench.runner.open_session(spec, (30, 100))
    await read_until(session, b"terminal")
    await session.write(b"hello\n")
    await read_until(session, b"got:hello")
    await session.wait_ended()
    assert session.exit_code == 7
    await session.close()


async def test_output_is_taken_in_unread_and_kept_to_a_cap(bench: Bench) -> None:
    session = await bench.runner.open_session(bench.spec("sh", "-c", "seq 100000; echo end"))
    with anyio.fail_after(10):
        await session.wait_ended()
    output = await session.read(0)
    assert output.startswith(b"1\r\n")
    assert output.endswith(b"end\r\n")
    assert len(output) < 200_000
    await session.close()


async def test_closing_ends_the_command(bench: Bench) -> None:
    session = await bench.runner.open_session(bench.spec("sh", "-c", "trap '' HUP TERM; echo up; sleep 100"))
    await read_until(session, b"up")
    await session.close()
    assert session.exit_code == 137


async def test_a_program_that_is_missing(bench: Bench) -> None:
    session = await bench.runner.open_session(bench.spec("no-such-program"))
    await session.wait_ended()
    with pytest.raises(LaunchError, match="NotFound"):
        session.check()
    await session.close()


POLICIES: list[SandboxPolicy] = [DangerFullAccess(), ReadOnly()]


async def run(bench: Bench, spec: CommandSpec) -> ExecResult:
    return await bench.runner.run(spec, lambda stream, chunk: None)


@pytest.mark.parametrize("policy", POLICIES, ids=["free", "confined"])
@pytest.mark.parametrize("way", ["last", "before"])
async def test_a_link_that_came_into_the_path_is_not_followed(
    bench: Bench, policy: SandboxPolicy, way: str
) -> None:
    folder = bench.ws / "a" / "b"
    folder.mkdir(parents=True)
    (bench.outside / "b").mkdir()
    spec = replace(bench.spec("pwd", "-P", policy=policy), cwd=str(folder), exact_cwd=True)
    assert (await run(bench, spec)).stdout == f"{folder}\n".encode()
    folder.rmdir()
    if way == "before":
        folder.parent.rmdir()
        folder.parent.symlink_to(bench.outside)
    else:
        folder.symlink_to(bench.outside)
    with pytest.raises(LaunchError, match="NotADirectory"):
        await run(bench, spec)
    # If no particular folder was asked for, links are followed as usual.
    assert (await run(bench, replace(spec, exact_cwd=False))).stdout.startswith(bytes(bench.outside))


@pytest.mark.parametrize("policy", POLICIES, ids=["free", "confined"])
async def test_it_is_so_on_a_terminal_and_without_namespaces(degraded: Bench, policy: SandboxPolicy) -> None:
    (degraded.ws / "link").symlink_to(degraded.outside)
    spec = replace(degraded.spec("pwd", "-P", policy=policy), cwd=str(degraded.ws / "link"), exact_cwd=True)
    with pytest.raises(LaunchError, match="NotADirectory"):
        await run(degraded, spec)
    session = await degraded.runner.open_session(spec)
    await session.wait_ended()
    with pytest.raises(CoreError):
        session.check()
    await session.close()


async def test_a_folder_that_may_be_passed_but_not_listed_is_entered(bench: Bench) -> None:
    folder = bench.ws / "shut" / "in"
    folder.mkdir(parents=True)
    folder.parent.chmod(0o111)
    try:
        spec = replace(bench.spec("pwd", "-P"), cwd=str(folder), exact_cwd=True)
        assert (await run(bench, spec)).stdout == f"{folder}\n".encode()
    finally:
        folder.parent.chmod(0o755)
