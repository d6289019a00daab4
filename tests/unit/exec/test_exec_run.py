"""Running commands unconfined: output, exit codes, limits, and what is left of a tree."""

import contextlib
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path

import anyio
import pytest

from app_server.core.errors import LaunchError
from app_server.core.exec.command import Stream
from app_server.core.exec.streams import STREAM_CAP
from app_server.core.launcher import descendants
from protocol.structs import replace
from tests.unit.exec.conftest import Bench

Find = Callable[[str], list[int]]


def mark() -> str:
    """A number of seconds that nothing else sleeps."""
    return f"9{uuid.uuid4().int % 10**9:09d}"


async def gone(find: Find, number: str) -> None:
    with anyio.fail_after(5):
        while find(number):  # noqa: ASYNC110 - the kernel has no event for this
            await anyio.sleep(0.01)


async def test_output_and_exit_code(bench: Bench) -> None:
    result = await bench.sh("echo out; echo err >&2; exit 3")
    assert (result.exit_code, result.stdout, result.stderr) == (3, b"out\n", b"err\n")
    assert sorted(result.aggregated.splitlines()) == [b"err", b"out"]
    assert not result.timed_out
    assert not result.denied
    assert {stream for stream, _ in bench.chunks} == {Stream.STDOUT, Stream.STDERR}


async def test_bytes_come_as_they_are(bench: Bench) -> None:
    result = await bench.sh(r"printf '\377\000\n'")
    assert result.stdout == b"\xff\x00\n"


async def test_a_signal_is_128_and_its_number(bench: Bench) -> None:
    assert (await bench.sh("kill -TERM $$")).exit_code == 143


async def test_stdin_is_empty_and_sigpipe_kills(bench: Bench) -> None:
    assert (await bench.sh("cat; yes | head -1")).stdout == b"y\n"
    assert (await bench.sh("yes | head -1 >/dev/null; exit 0")).stderr == b""


async def test_a_session_of_its_own_and_no_descriptors(bench: Bench) -> None:
    script = 'test "$(ps -o sid= -p $$ | tr -d " ")" = $$ && ls /proc/$$/fd'
    result = await bench.sh(script)
    assert result.exit_code == 0
    assert set(result.stdout.split()) <= {b"0", b"1", b"2"}


async def test_the_environment_is_what_was_given(bench: Bench) -> None:
    result = await bench.runner.run(
        replace(bench.spec("env"), env={"PATH": "/usr/bin:/bin", "A": "ü"}), lambda *_: None
    )
    assert set(result.stdout.split(b"\n")) - {b""} == {b"PATH=/usr/bin:/bin", "A=ü".encode()}


@pytest.mark.parametrize(
    ("argv", "cwd", "words"),
    [
        (("no-such-program",), None, "NotFound"),
        (("pwd",), "/no/such/folder", "NotFound"),
        (("/etc/passwd",), None, "PermissionDenied"),
        ((), None, "empty"),
        (("echo", "a\0b"), None, "nul"),
    ],
)
async def test_what_cannot_be_executed_raises(
    bench: Bench, argv: tuple[str, ...], cwd: str | None, words: str
) -> None:
    spec = replace(bench.spec(*argv), cwd=cwd or str(bench.ws))
    with pytest.raises(LaunchError, match=words):
        await bench.runner.run(spec, lambda *_: None)


async def test_much_output_keeps_head_and_tail(bench: Bench) -> None:
    result = await bench.sh("echo first; head -c 64M /dev/zero; echo last")
    assert len(result.stdout) < STREAM_CAP + 100
    assert result.stdout.startswith(b"first\n")
    assert result.stdout.endswith(b"last\n")
    assert b"bytes omitted" in result.stdout
    assert sum(len(chunk) for _, chunk in bench.chunks) == 64 * 1024 * 1024 + len("first\nlast\n")


async def test_a_large_request_arrives_whole(bench: Bench) -> None:
    text = "x" * 100_000
    result = await bench.runner.run(bench.spec("printf", "%s%s%s", text, text, text), lambda *_: None)
    assert result.stdout == 3 * text.encode()


async def test_the_time_limit_ends_the_whole_tree(bench: Bench, marked: Find) -> None:
    number = mark()
    daemon = f"(setsid sh -c 'sleep {number}' &)"
    script = f"echo started; trap '' TERM; setsid sleep {number} & {daemon}; sleep {number}"
    result = await bench.sh(script, timeout_ms=1500)
    assert (result.exit_code, result.timed_out, result.stdout) == (124, True, b"started\n")
    assert not marked(number)


async def test_cancelling_ends_the_whole_tree(bench: Bench, marked: Find) -> None:
    number = mark()
    spec = bench.spec("sh", "-c", f"setsid sleep {number} & echo up; sleep {number}")
    with anyio.fail_after(5):
        async with anyio.create_task_group() as group:
            up = anyio.Event()
            group.start_soon(bench.runner.run, spec, lambda stream, chunk: up.set())
            await up.wait()
            group.cancel_scope.cancel()
    assert not marked(number)


async def test_what_is_left_behind_does_not_hold_the_call(bench: Bench, marked: Find) -> None:
    number = mark()
    with anyio.fail_after(5):
        result = await bench.sh(f"sleep {number} & echo done")
    assert result.stdout == b"done\n"
    assert marked(number)
    await bench.runner.close()
    assert not marked(number)


async def test_many_commands_run_concurrently(bench: Bench) -> None:
    codes: list[int] = []

    async def one(code: int) -> None:
        codes.append((await bench.sh(f"exit {code}")).exit_code)

    async with anyio.create_task_group() as group:
        for code in range(30):
            group.start_soon(one, code)
    assert sorted(codes) == list(range(30))


async def test_commands_at_once_hold_nothing_of_one_another(bench: Bench) -> None:
    """Each needs a supervisor that is forked while its command is at hand: no copy of its pipes may stay open."""
    await bench.sh("true")
    assert bench.runner.launcher_pid is not None
    (first,) = pipe_counts(descendants.below(bench.runner.launcher_pid, descendants.parents()))
    async with anyio.create_task_group() as group:
        for _ in range(6):
            group.start_soon(bench.sh, "sleep 0.2; echo done")
    below = descendants.below(bench.runner.launcher_pid, descendants.parents())
    assert len(below) > 1
    assert pipe_counts(below) == {first}


def pipe_counts(pids: Iterable[int]) -> set[int]:
    """How many pipes these processes hold, but for those that have ended meanwhile."""
    found = set()
    for pid in pids:
        with contextlib.suppress(FileNotFoundError):
            links = Path(f"/proc/{pid}/fd").iterdir()
            found.add(sum(str(link.readlink()).startswith("pipe:") for link in links))
    return found


async def test_another_launcher_takes_over(bench: Bench) -> None:
    await bench.sh("true")
    first = bench.runner.launcher_pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    os.waitid(os.P_PID, first, os.WEXITED | os.WNOWAIT)  # noqa: ASYNC222 - it was just killed
    assert (await bench.sh("echo again")).stdout == b"again\n"
    assert bench.runner.launcher_pid != first


SERVER = """
import sys, anyio
from app_server.core.exec.command import CommandSpec
from app_server.core.exec.runner import CommandRunner
async def main():
    async with CommandRunner(sys.executable, sys.argv[1], None, {}) as runner:
        spec = CommandSpec(argv=("sh", "-c", sys.argv[2]), cwd="/", env={"PATH": "/usr/bin:/bin"})
        await runner.run(spec, lambda stream, chunk: print("up", flush=True))
anyio.run(main)
"""


async def test_nothing_survives_a_killed_server(tmp_path: Path, marked: Find) -> None:
    number = mark()
    script = f"setsid sleep {number} & (setsid sh -c 'sleep {number} & exit' &); echo up; sleep {number}"
    server = subprocess.Popen(  # noqa: ASYNC220 - it is to be killed while it runs
        [sys.executable, "-c", SERVER, str(tmp_path), script],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[3],
    )
    assert server.stdout is not None
    assert await anyio.to_thread.run_sync(server.stdout.readline) == b"up\n"
    server.kill()
    server.wait()
    server.stdout.close()
    await gone(marked, number)


async def test_supervisors_are_kept_for_the_next_command_unless_something_is_left(
    bench: Bench, marked: Find
) -> None:
    parents = [(await bench.sh("echo $PPID")).stdout for _ in range(12)]
    assert len(set(parents)) < len(parents)
    number = mark()
    busy = (await bench.sh(f"sleep {number} & echo $PPID")).stdout
    assert busy not in [(await bench.sh("echo $PPID")).stdout for _ in range(12)]
    assert marked(number)
    await bench.runner.close()
    assert not marked(number)


SUPERVISOR = """
import os, socket
from app_server.core.launcher import supervisor
wakeup = supervisor.watch_children()
def run(argv):
    channel, remote = socket.socketpair()
    out, writer = os.pipe()
    request = {"cwd": b"/", "exact_cwd": False, "env": {}, "argv": argv, "tty": False, "background": True}
    supervisor.supervise(request, [remote.detach(), writer, os.dup(writer)], wakeup, None, whole=False)
    assert channel.recv(1000) and channel.recv(1000) == b"", "it must report, and let go of the channel"
    os.close(out)
    return len(os.listdir("/proc/self/fd"))
commands = ([b"/bin/true"], [b"/bin/sh", b"-c", b"exit 3"], [b"/nothing"])
print(len({run(argv) for argv in commands for _ in range(5)}))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="counts descriptors in /proc")
def test_a_supervisor_keeps_nothing_of_its_commands() -> None:
    told = subprocess.run([sys.executable, "-c", SUPERVISOR], check=True, capture_output=True, text=True)
    assert told.stdout == "1\n"
