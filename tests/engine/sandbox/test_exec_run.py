"""Unconfined commands: environment, output, exit codes, limits, and leftovers."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.engine.config.config_values import EnvInherit, ShellEnvironmentPolicy
from app_server.engine.sandbox.exec.command import command_environment
from app_server.engine.sandbox.exec.streams import STREAM_CAP, HeadTail
from app_server.engine.sandbox.launcher import descendants, launcher_wire
from app_server.engine.sandbox.plan import SandboxPlan
from app_server.engine.support.engine_errors import LaunchError
from app_server_protocol.engine.item_values import ExecOutputStream
from app_server_protocol.values import replace
from tests.engine.sandbox.conftest import Bench
from tests.support.waiting import until

Find = Callable[[str], list[int]]


def mark() -> str:
    """Return a unique number of seconds: no other process sleeps that long."""
    return f"9{uuid.uuid4().int % 10**9:09d}"


async def gone(find: Find, number: str) -> None:
    await until(lambda: not find(number))


async def test_output_and_exit_code(bench: Bench) -> None:
    result = await bench.sh("echo out; echo err >&2; exit 3")
    assert (result.exit_code, result.stdout, result.stderr) == (3, b"out\n", b"err\n")
    assert sorted(result.aggregated.splitlines()) == [b"err", b"out"]
    assert not result.timed_out
    assert not result.denied
    assert {stream for stream, _ in bench.chunks} == {ExecOutputStream.STDOUT, ExecOutputStream.STDERR}


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


async def test_commands_at_once_hold_nothing_of_one_another(bench: Bench) -> None:
    """Each command needs a supervisor, which is forked while the command's pipes are open: no copy may stay open."""
    await bench.sh("true")
    assert bench.launcher_pid is not None
    launcher = bench.launcher_pid
    # A process that was just forked closes the descriptors that it does not need a moment later.
    await until(lambda: len(pipe_counts(launcher)) == 1)
    (first,) = pipe_counts(launcher)
    async with anyio.create_task_group() as group:
        for _ in range(6):
            group.start_soon(bench.sh, "sleep 0.2; echo done")
    assert len(descendants.below(launcher, descendants.parents())) > 1
    await until(lambda: pipe_counts(launcher) == {first})


def pipe_counts(launcher: int) -> set[int]:
    """Return the numbers of pipes that the processes below the launcher hold, without those that have ended
    meanwhile.
    """
    found = set()
    for pid in descendants.below(launcher, descendants.parents()):
        with contextlib.suppress(FileNotFoundError):
            links = Path(f"/proc/{pid}/fd").iterdir()
            found.add(sum(str(link.readlink()).startswith("pipe:") for link in links))
    return found


async def test_another_launcher_takes_over(bench: Bench) -> None:
    await bench.sh("true")
    first = bench.launcher_pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    os.waitid(os.P_PID, first, os.WEXITED | os.WNOWAIT)  # noqa: ASYNC222 - it was just killed
    assert (await bench.sh("echo again")).stdout == b"again\n"
    assert bench.launcher_pid != first


SERVER = """
import sys, anyio
from app_server.engine.sandbox.exec.command import CommandSpec
from app_server.engine.sandbox.exec.command_runner import CommandRunner
async def main():
    async with CommandRunner(sys.executable, sys.argv[1], {}) as runner:
        spec = CommandSpec(argv=("sh", "-c", sys.argv[2]), cwd="/", env={"PATH": "/usr/bin:/bin"})
        await runner.run(spec, lambda stream, chunk: print("up", flush=True))
anyio.run(main)
"""


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
from app_server.engine.sandbox.launcher import supervisor
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


@given(st.lists(st.binary(max_size=40)), st.integers(2, 60))
def test_head_and_tail_are_kept(chunks: list[bytes], cap: int) -> None:
    kept = HeadTail(cap)
    for chunk in chunks:
        kept.add(chunk)
    whole, value, half = b"".join(chunks), kept.value(), cap // 2
    if len(whole) <= 2 * half:
        assert value == whole
    else:
        assert value.startswith(whole[:half])
        assert value.endswith(whole[-half:])
        assert b"[... %d bytes omitted ...]" % (len(whole) - 2 * half) in value


@given(st.dictionaries(st.binary(), st.lists(st.integers() | st.binary() | st.none())))
def test_a_message_arrives_as_it_was_sent(value: dict[bytes, list[int | bytes | None]]) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        launcher_wire.send(ours, value, [])
        assert launcher_wire.receive(theirs) == (value, [])
        ours.close()
        assert launcher_wire.receive(theirs) is None


def test_descriptors_travel_and_are_not_inherited() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, socket.socket() as sent:
        launcher_wire.send(ours, "x" * 10, [sent.fileno()])
        message = launcher_wire.receive(theirs)
        assert message is not None
        with socket.socket(fileno=message[1][0]) as got:
            assert not got.get_inheritable()


def test_below_finds_every_descendant() -> None:
    assert descendants.below(1, {2: 1, 3: 2, 4: 2, 5: 9, 6: 4, 1: 0}) == [2, 3, 4, 6]


OF_THE_SERVER = {
    "HOME": "/home/u",
    "PATH": "/usr/bin",
    "LANG": "C.UTF-8",
    "EDITOR": "vi",
    "OPENAI_API_KEY": "sk-1",
    "MY_TOKEN": "t",
    "DB_PASSWORD": "p",
    "ACME_CREDENTIAL": "c",
    "LD_PRELOAD": "/evil.so",
    "BASH_ENV": "/evil.sh",
    "BASH_FUNC_ls%%": "() { evil; }",
    "GIT_SSH_COMMAND": "evil",
}


def made(
    policy: ShellEnvironmentPolicy, plan: SandboxPlan | None = None, withheld: tuple[str, ...] = ()
) -> set[str]:
    return set(command_environment(policy, OF_THE_SERVER, plan, withheld=withheld))


OF_BUILDS = {"LD_PRELOAD", "BASH_ENV", "BASH_FUNC_ls%%", "GIT_SSH_COMMAND"}
"""Variables by which programs load or execute another file. The user has set them."""


def test_everything_but_secrets_is_inherited() -> None:
    assert made(ShellEnvironmentPolicy()) == {"HOME", "PATH", "LANG", "EDITOR", "ACME_CREDENTIAL", *OF_BUILDS}


def test_a_command_that_is_known_to_read_executes_nothing_else() -> None:
    kept = command_environment(ShellEnvironmentPolicy(), OF_THE_SERVER, None, known_to_read=True)
    assert set(kept) == {"HOME", "PATH", "LANG", "EDITOR", "ACME_CREDENTIAL"}


def test_settings_of_git_go_together_because_they_may_hold_a_login() -> None:
    server = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "http.extraHeader", "GIT_CONFIG_VALUE_0": "secret"}
    assert command_environment(ShellEnvironmentPolicy(), server, None) == {}
    everything = ShellEnvironmentPolicy(ignore_default_excludes=True)
    assert command_environment(everything, server, None) == server


def test_inherit_core_keeps_basic_variables_and_inherit_none_keeps_no_variable() -> None:
    assert made(ShellEnvironmentPolicy(inherit=EnvInherit.CORE)) == {"HOME", "PATH"}
    assert made(ShellEnvironmentPolicy(inherit=EnvInherit.NONE)) == set()


def test_the_servers_own_secrets_go_whatever_the_policy_says() -> None:
    policy = ShellEnvironmentPolicy(ignore_default_excludes=True)
    names = made(policy, withheld=("ACME_CREDENTIAL",))
    assert {"MY_TOKEN", "DB_PASSWORD"} <= names
    assert not {"OPENAI_API_KEY", "ACME_CREDENTIAL"} & names


def test_what_is_set_by_name_wins() -> None:
    policy = ShellEnvironmentPolicy(
        inherit=EnvInherit.NONE, exclude=("A*",), set={"OPENAI_API_KEY": "mine", "A": "1"}
    )
    assert command_environment(policy, OF_THE_SERVER, None) == {"OPENAI_API_KEY": "mine", "A": "1"}


@pytest.mark.parametrize("pattern", ["edit*", "EDITOR", "?DITOR", "*R"])
def test_exclusions_are_globs_in_any_case(pattern: str) -> None:
    assert "EDITOR" not in made(ShellEnvironmentPolicy(exclude=(pattern,)))
    assert "LANG" in made(ShellEnvironmentPolicy(exclude=(pattern,)))


def test_include_only_comes_last() -> None:
    policy = ShellEnvironmentPolicy(set={"EXTRA": "1"}, include_only=("PATH", "HO*"))
    assert made(policy) == {"PATH", "HOME"}


def test_a_pattern_is_no_regular_expression() -> None:
    assert "EDITOR" in made(ShellEnvironmentPolicy(exclude=("EDI.OR", "[E]DITOR")))


def test_markers_tell_of_the_sandbox() -> None:
    marker = "CODEX_SANDBOX_NETWORK_DISABLED"
    policy = ShellEnvironmentPolicy(include_only=("PATH",))
    assert command_environment(policy, OF_THE_SERVER, SandboxPlan())[marker] == "1"
    assert marker not in made(policy, SandboxPlan(network=True))
    assert marker not in made(policy)


def test_a_url_with_a_password_is_a_secret() -> None:
    server = {
        "HTTPS_PROXY": "http://user:password@proxy:8080",
        "DATABASE_URL": "postgres://:password@host/db",
        "PLAIN_PROXY": "http://user@proxy:8080/a:b@c",
        "TIME": "at 10:00 @ home",
    }
    kept = command_environment(ShellEnvironmentPolicy(), server, None)
    assert kept.keys() == {"PLAIN_PROXY", "TIME"}
    everything = ShellEnvironmentPolicy(ignore_default_excludes=True)
    assert command_environment(everything, server, None) == server


def test_what_leads_to_services_of_the_user_is_kept_from_confined_commands_only() -> None:
    server = {
        "SSH_AUTH_SOCK": "/tmp/ssh/agent",
        "DBUS_SESSION_BUS_ADDRESS": "unix:path=/run/user/1/bus",
        "A": "1",
    }
    policy = ShellEnvironmentPolicy()
    assert command_environment(policy, server, None) == server
    assert command_environment(policy, server, SandboxPlan(network=True)) == {"A": "1"}
    own = ShellEnvironmentPolicy(set={"SSH_AUTH_SOCK": "/mine"})
    assert command_environment(own, server, SandboxPlan(network=True))["SSH_AUTH_SOCK"] == "/mine"
