"""Commands under the sandbox of this machine: its limits, what works, and how it looks from outside."""

import os
import stat
import sys
from pathlib import Path

import anyio
import pytest

from app_server.engine.config.safe_file import STAGED
from app_server.engine.sandbox.exec.command import ExecResult
from app_server.engine.sandbox.launcher.namespaces import DEVICES, MAX_ENTRIES
from app_server_protocol.policy import ReadOnly, WorkspaceWrite
from tests.engine.sandbox.conftest import Bench, at_level

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the Linux sandbox")

RO = ReadOnly()
WW = WorkspaceWrite(exclude_slash_tmp=True, exclude_tmpdir_env_var=True)


@pytest.fixture
async def bench(bench: Bench) -> Bench:
    return await at_level(bench, "full")


async def python(bench: Bench, code: str, policy: ReadOnly | WorkspaceWrite = RO) -> ExecResult:
    return await bench.runner.run(
        bench.spec(sys.executable, "-I", "-c", code, policy=policy), lambda *_: None
    )


async def python_unconfined(bench: Bench, code: str) -> ExecResult:
    return await bench.runner.run(bench.spec(sys.executable, "-I", "-c", code), lambda *_: None)


async def test_the_workspace_is_writable_and_other_places_look_empty_handed(bench: Bench) -> None:
    result = await bench.sh(
        "mkdir d && echo x > d/f && chmod 700 d/f && mv d/f g && ln g h && rm h && mkfifo p", WW
    )
    assert result.exit_code == 0, result.stderr
    assert (bench.ws / "g").read_text() == "x\n"


async def test_names_that_were_held_are_gone_afterwards(bench: Bench) -> None:
    assert b".codex" in (await bench.sh("ls -a", WW)).stdout
    await bench.runner.close()
    assert os.listdir(bench.ws) == []


async def test_a_link_among_protected_names_is_pinned_with_its_target(bench: Bench) -> None:
    (bench.ws / "real").mkdir()
    (bench.ws / ".codex").symlink_to("real")
    await bench.sh("echo x > real/config.toml; rm .codex; mkdir .codex; echo x > .codex/config.toml", WW)
    assert (bench.ws / ".codex").is_symlink()
    assert os.listdir(bench.ws / "real") == []


async def test_commands_that_follow_one_another_at_once_are_all_confined(bench: Bench) -> None:
    # Each command is planned while the placeholders of the one before are being removed, or have just been removed.
    for n in range(40):
        result = await bench.sh(
            f"sleep 0.00{n % 8}; echo x > .codex/y || mkdir .git/hooks || echo refused", WW
        )
        assert result.stdout == b"refused\n"
    async with anyio.create_task_group() as group:
        for _ in range(8):
            group.start_soon(bench.sh, "echo x > .agents/y", WW)
    await bench.runner.close()
    assert os.listdir(bench.ws) == []


async def test_where_a_git_file_points_is_protected(bench: Bench) -> None:
    (bench.ws / "store").mkdir()
    (bench.ws / ".git").write_text("gitdir: store\n")
    await bench.sh("echo x > store/hook; echo 'gitdir: evil' > .git; mv store s", WW)
    assert (bench.ws / ".git").read_text() == "gitdir: store\n"
    assert os.listdir(bench.ws / "store") == []


async def test_secrets_of_the_home_cannot_be_read_and_the_rest_can(bench: Bench) -> None:
    home = bench.runner.home
    assert (await bench.sh(f"cat {home}/config.toml", RO)).stdout == b"# settings\n"
    Path(home, f".auth.json{STAGED}x").write_text("sentinel of a writer that was killed")
    result = await bench.sh(f"cat {home}/auth.json {home}/.auth*; ls -a {home}", RO)
    assert b"sentinel" not in result.stdout
    assert b"auth.json" not in result.stdout


@pytest.mark.parametrize("policy", [RO, WW], ids=["read-only", "workspace-write"])
async def test_the_folder_of_a_shared_server_is_out_of_reach(
    bench: Bench, policy: ReadOnly | WorkspaceWrite
) -> None:
    """Its token opens the server, and its locks decide which server serves."""
    control = Path(bench.runner.home, "app-server-control")
    control.mkdir(mode=0o700)
    for name in ("ws-token", "server.lock"):
        (control / name).write_text("sentinel")
    script = f"cat {control}/ws-token; mv {control} {control}2; echo x >> {control}/server.lock; ls {control}"
    result = await bench.sh(script, policy)
    assert result.stdout == b""
    assert {each.name: each.read_text() for each in control.iterdir()} == dict.fromkeys(
        ("ws-token", "server.lock"), "sentinel"
    )


@pytest.mark.parametrize("pause", [0.0, 0.1], ids=["at once", "settled"])
async def test_a_home_that_changes_is_shown_as_it_is_and_never_its_secrets(
    bench: Bench, pause: float
) -> None:
    home = Path(bench.runner.home)
    script = f"cat {home}/config.toml; cd {home} && ls -A -I tmp && touch new; cat */auth.json auth.json"

    async def shown() -> list[str]:
        result = await bench.sh(script, RO)
        # The next view is prepared while no command runs; a change that follows at once is the harder case.
        await anyio.sleep(pause)
        return result.stdout.decode().splitlines()

    assert await shown() == ["# settings", "config.toml"]
    (home / "sessions").mkdir()
    assert await shown() == ["# settings", "config.toml", "sessions"]
    (home / "other").write_text("# edited\n")
    (home / "other").replace(home / "config.toml")
    assert await shown() == ["# edited", "config.toml", "sessions"]
    (home / "auth.json").replace(home / "moved")
    (home / "moved").replace(home / "auth.json")
    (home / "sessions").rmdir()
    assert await shown() == ["# edited", "config.toml"]
    # Another folder with secrets of its own replaces it.
    home.rename(home.with_name("away"))
    home.mkdir()
    (home / "auth.json").write_text('{"key": "sentinel"}')
    (home / "config.toml").write_text("# new\n")
    assert await shown() == ["# new", "config.toml"]


async def test_a_home_inside_the_workspace_is_fenced(bench: Bench) -> None:
    home = bench.ws / ".codex"
    home.mkdir()
    (home / "config.toml").write_text("# mine\n")
    bench.runner.home = str(home)
    await bench.sh("echo evil >> .codex/config.toml; echo evil > .codex/auth.json", WW)
    assert os.listdir(home) == ["config.toml"]
    assert (home / "config.toml").read_text() == "# mine\n"


@pytest.mark.parametrize(
    "code",
    [
        "import socket; socket.socket()",
        "import socket; socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)",
        "import socket; socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)",
        "import socket; socket.socket(socket.AF_UNIX).connect('/nowhere')",
        "import os; os.kill({pid}, 0)",
        "import os; os.stat('/proc/{pid}')",
        "import fcntl; fcntl.ioctl(0, 0x5412, b'x')",
        "import os; os.open('/dev/shm/../../proc/sys/kernel/hostname', os.O_WRONLY)",
    ],
)
async def test_other_processes_and_the_network_are_out_of_reach(bench: Bench, code: str) -> None:
    result = await python(bench, code.replace("{pid}", str(os.getpid())))
    assert result.exit_code == 1, result.stdout
    assert b"Error" in result.stderr


@pytest.mark.parametrize(
    "code",
    [
        "import socket; a, b = socket.socketpair(); a.send(b'x'); assert b.recv(1) == b'x'",
        "import os; a, b = os.openpty(); os.write(b, b'x'); assert os.read(a, 1) == b'x'",
        "import tempfile; tempfile.TemporaryFile().write(b'x')",
        "import multiprocessing as m; p = m.Pool(1); assert p.map(abs, [-1]) == [1]",
        "import asyncio; asyncio.run(asyncio.sleep(0))",
        "import subprocess; subprocess.run(['true'], check=True)",
        "assert 'NoNewPrivs:\t1' in open('/proc/self/status').read()",
        "assert 'CapEff:\t0000000000000000' in open('/proc/self/status').read()",
    ],
)
async def test_what_programs_need_works(bench: Bench, code: str) -> None:
    result = await python(bench, code)
    assert result.exit_code == 0, result.stderr


async def test_commands_do_not_see_one_another(bench: Bench) -> None:
    assert (await bench.sh("echo x > /dev/shm/left; echo $$", RO)).exit_code == 0
    assert (await bench.sh("ls /dev/shm", RO)).stdout == b""


async def test_with_the_network_on_only_that_is_opened(bench: Bench) -> None:
    policy = WorkspaceWrite(network_access=True, exclude_slash_tmp=True, exclude_tmpdir_env_var=True)
    assert (
        await python(bench, "import socket; socket.socket().bind(('127.0.0.1', 0))", policy)
    ).exit_code == 0
    assert (await python(bench, "import socket; socket.socket(40, 1)", policy)).exit_code == 1
    assert (await bench.sh(f"echo x > {bench.outside}/new", policy)).exit_code != 0


@pytest.mark.parametrize("policy", [RO, WW])
@pytest.mark.parametrize(
    "change",
    [
        "os.chmod('/dev/full', 0o600)",
        "os.fchmod(os.open('/dev/full', os.O_WRONLY), 0o600)",
        "os.fchmod(0, 0o600)",
        "os.utime('/dev/full', (1, 1))",
    ],
)
async def test_mode_and_times_of_the_devices_of_the_machine_stay(
    bench: Bench, change: str, policy: ReadOnly | WorkspaceWrite
) -> None:
    before = [os.stat(f"/dev/{name}") for name in DEVICES]
    try:
        assert (await python(bench, f"import os; {change}", policy)).exit_code == 1
        after = [os.stat(f"/dev/{name}") for name in DEVICES]
    finally:
        for name, status in zip(DEVICES, before, strict=True):
            if os.geteuid() == 0:
                os.chmod(f"/dev/{name}", stat.S_IMODE(status.st_mode))
    assert [(one.st_mode, one.st_mtime, one.st_ctime) for one in after] == [
        (one.st_mode, one.st_mtime, one.st_ctime) for one in before
    ]


async def test_devices_can_be_read_and_written(bench: Bench) -> None:
    script = "echo x > /dev/null && echo x >> /dev/zero && head -c 1 /dev/urandom | wc -c; echo x > /dev/full"
    result = await bench.sh(script, RO)
    assert (result.stdout, result.exit_code) == (b"1\n", 1), result.stderr


@pytest.mark.parametrize("policy", [RO, WW])
@pytest.mark.parametrize("call", ["F_SETLEASE, fcntl.F_RDLCK", "F_NOTIFY, fcntl.DN_MODIFY"])
async def test_nobody_takes_a_lease_on_a_file_or_watches_a_folder(
    bench: Bench, call: str, policy: ReadOnly | WorkspaceWrite
) -> None:
    """A lease would make each writer of the file wait for it."""
    place = str(bench.outside if "NOTIFY" in call else bench.outside / "transcript")
    (bench.outside / "transcript").write_text("a line")
    code = f"import fcntl, os; fcntl.fcntl(os.open({place!r}, os.O_RDONLY), fcntl.{call})"
    result = await python(bench, code, policy)
    assert b"PermissionError" in result.stderr
    control = await python_unconfined(bench, code)
    assert control.exit_code == 0, control.stderr


async def test_the_directory_of_a_command_is_no_root(bench: Bench, tmp_path: Path) -> None:
    plan = bench.runner.plan(WW, str(bench.ws))
    assert plan is not None
    assert plan.writable_roots == (str(bench.ws),)


async def test_degraded_still_confines_writes_and_network(degraded: Bench) -> None:
    state = await degraded.runner.sandbox.state()
    assert state.warning is not None
    assert state.gaps
    assert (await degraded.sh(f"echo x > {degraded.outside}/new", WW)).denied
    assert (await degraded.sh("echo x > new", WW)).exit_code == 0
    assert (await degraded.sh("chmod 700 .", RO)).exit_code != 0
    assert (await python(degraded, "import socket; socket.socket()")).exit_code == 1
    assert (await python(degraded, f"import os; os.kill({os.getpid()}, 0)")).exit_code == 1
    assert os.listdir(degraded.outside) == []


@pytest.mark.parametrize("policy", [RO, WW])
async def test_a_home_with_too_many_entries_is_shown_empty(
    bench: Bench, policy: ReadOnly | WorkspaceWrite
) -> None:
    home = bench.outside.parent / "home"
    for n in range(MAX_ENTRIES + 1):
        (home / f"f{n}").touch()
    assert (await bench.sh(f"ls -A {home}; cat {home}/auth.json", policy)).stdout == b""


async def test_a_home_that_may_not_be_listed_shows_no_credentials(bench: Bench) -> None:
    home = bench.outside.parent / "home"
    home.chmod(0o300)
    assert (await bench.sh(f"cat {home}/auth.json", WW)).stdout == b""


async def test_credentials_that_are_replaced_while_a_command_runs_stay_out_of_its_sight(bench: Bench) -> None:
    home = bench.outside.parent / "home"
    for n in range(MAX_ENTRIES + 1):
        (home / f"f{n}").touch()

    def replace_credentials(*output: object) -> None:
        (home / "auth.json.new").write_text("refreshed")
        (home / "auth.json.new").rename(home / "auth.json")
        (bench.ws / "go").touch()

    script = f"echo up; until test -e go; do sleep 0.01; done; cat {home}/auth.json"
    result = await bench.runner.run(bench.spec("sh", "-c", script, policy=WW), replace_credentials)
    assert (home / "auth.json").read_text() == "refreshed"
    assert result.stdout == b"up\n"


SETUID = """
import os
tries = {
    'chmod': lambda: os.chmod('f', 0o4755), 'fchmod': lambda: os.fchmod(os.open('f', 1), 0o2755),
    'fchmodat': lambda: os.chmod('f', 0o6755, dir_fd=os.open('.', 0)),
    'open': lambda: os.open('a', os.O_CREAT | os.O_WRONLY, 0o4755),
    'tmpfile': lambda: os.open('.', os.O_TMPFILE | os.O_WRONLY, 0o4755), 'mknod': lambda: os.mknod('b', 0o104755),
}
for name, act in tries.items():
    try: act()
    except PermissionError: continue
    print(name)
os.mkdir('d', 0o6755)
os.chmod('f', 0o1711)
print('done')
"""


async def _makes_no_setuid_file(bench: Bench) -> None:
    (bench.ws / "f").touch()
    assert (await python(bench, SETUID, WW)).stdout == b"done\n"
    assert not any(path.stat().st_mode & 0o6000 for path in bench.ws.iterdir())
    copied = await bench.sh(
        "cp /bin/true t && install -m 755 t u && tar cf x.tar t && tar xf x.tar && ./t", WW
    )
    assert copied.exit_code == 0, copied.stderr


async def test_no_setuid_file_is_made(bench: Bench) -> None:
    await _makes_no_setuid_file(bench)


async def test_no_setuid_file_is_made_without_namespaces(degraded: Bench) -> None:
    await _makes_no_setuid_file(degraded)


async def test_without_namespaces_there_are_only_pairs_of_unix_sockets(degraded: Bench) -> None:
    code = """
import socket
socket.socketpair()
for act in ("socket.socket(1).bind('s')", "socket.socket(1).connect('s')"):
    try: exec(act)
    except PermissionError: print('refused')
"""
    online = WorkspaceWrite(network_access=True, exclude_slash_tmp=True)
    for policy in (WW, online):
        assert (await python(degraded, code, policy)).stdout == b"refused\nrefused\n"
