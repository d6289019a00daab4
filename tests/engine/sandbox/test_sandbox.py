"""The promises of the sandbox: the real process holds them against commands that try to break them, over several turns
and conversations.
"""

import ctypes
import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from app_server.engine.support.process_memory import refuse_inspection
from app_server_protocol.encoding import Json
from tests.support.pictures import PNG
from tests.support.places import Place
from tests.support.scripted_model import calls, patches, reply, says, script
from tests.support.waiting import until
from tests.support.world import MakeWorld, World

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(sys.platform != "linux", reason="the sandbox of this system is tested as text"),
]

KEY = "sentinel-in-the-environment"
WORKSPACE = {
    "mode": "workspace-write",
    "writable_roots": [],
    "network_access": False,
    "exclude_tmpdir_env_var": True,
    "exclude_slash_tmp": True,
}
READ_ONLY = {"mode": "read-only"}
FULL_ACCESS = {"mode": "danger-full-access"}


@pytest.fixture(autouse=True)
def outside(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "elsewhere" / "ws").mkdir(parents=True)
    (tmp_path / "outside" / "f").write_text("orig")


async def ran(w: World, text: str, policy: Json = WORKSPACE, **more: Json) -> Json:
    """Return the result of a shell script that runs outside of any conversation."""
    params = {"command": ["sh", "-c", text], "cwd": str(w.workspace), "sandboxPolicy": policy, **more}
    return await w.client.call("execOneOffCommand", params)


def sleeping(seconds: str) -> list[int]:
    """Return the processes that sleep for exactly this time. A number that nobody else uses identifies them."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if (entry / "cmdline").read_bytes() == b"sleep\0" + seconds.encode() + b"\0":
                    found.append(int(entry.name))
            except OSError:
                pass
    return found


async def until_asleep(seconds: str, count: int) -> None:
    await until(lambda: len(sleeping(seconds)) == count)


@pytest.fixture
def nap() -> Iterator[str]:
    seconds = f"86400.{os.getpid()}"
    yield seconds
    for pid in sleeping(seconds):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("policy", [WORKSPACE, READ_ONLY])
async def test_nothing_changes_outside_of_the_roots(world: MakeWorld, policy: Json) -> None:
    attempts = [
        "echo x > {}",
        "chmod 600 {}",
        "touch -d 2001-01-01 {}",
        "rm {}",
        "mv {} {}2",
        "ln {} {}3",
        "mkdir {}4",
    ]
    async with world(transport="process") as w:
        victim = w.root / "outside" / "f"
        before = victim.stat()
        for attempt in attempts:
            result = await ran(w, attempt.replace("{}", str(victim)), policy)
            assert result["exitCode"] != 0, attempt
        inside = await ran(w, "echo x > made", policy)
        assert (inside["exitCode"] == 0) is (policy is WORKSPACE)
        assert (victim.read_text(), os.listdir(victim.parent)) == ("orig", ["f"])
        after = victim.stat()
    assert (after.st_mode, after.st_mtime_ns, after.st_nlink) == (before.st_mode, before.st_mtime_ns, 1)


async def test_what_decides_what_runs_later_cannot_be_written(world: MakeWorld) -> None:
    async with world(transport="process", git=True) as w:
        for attempt in (
            "echo x > .git/hooks/pre-commit",
            "mv .git gone",
            "mkdir .codex && echo x > .codex/config.toml",
            "echo x > .agents",
            f"echo x > {w.home}/config.toml",
        ):
            assert (await ran(w, attempt))["exitCode"] != 0, attempt
        assert (await ran(w, "git status --short"))["exitCode"] == 0
        assert not (w.workspace / ".git/hooks/pre-commit").exists()
    assert sorted(os.listdir(w.workspace)) == [".git"]


async def test_the_network_is_off_unless_it_is_granted(world: MakeWorld) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        connect = f"import socket; socket.create_connection(('127.0.0.1', {port}), 5)"
        text = f'{sys.executable} -I -S -c "{connect}"'
        async with world(transport="process") as w:
            refused = await ran(w, text)
            assert (refused["exitCode"], "not permitted" in refused["stderr"]) == (1, True)
            assert (await ran(w, text, WORKSPACE | {"network_access": True}))["exitCode"] == 0


async def test_credentials_and_other_processes_are_out_of_sight(world: MakeWorld) -> None:
    secrets = {"OPENAI_API_KEY": KEY, "SOME_TOKEN": KEY}
    async with world(transport="process", environment=secrets) as w:
        (w.home / "auth.json").write_text('{"OPENAI_API_KEY": "sentinel-on-disk"}')
        seen = await ran(
            w, f"env; cat {w.home}/auth.json; cat /proc/*/environ; ls /proc; kill -0 {os.getpid()}"
        )
        assert "sentinel" not in seen["stdout"] + seen["stderr"]
        assert seen["exitCode"] != 0
        pids = [line for line in seen["stdout"].splitlines() if line.isdigit()]
        assert pids
        assert all(int(pid) < 100 for pid in pids)
        for policy in (WORKSPACE, FULL_ACCESS):
            assert KEY not in (await ran(w, "env", policy))["stdout"]


async def test_nothing_that_is_confined_outlives_its_command(world: MakeWorld, nap: str) -> None:
    async with world(transport="process") as w:
        result = await ran(w, f"setsid sleep {nap} >/dev/null 2>&1 & sleep 0")
        assert result["exitCode"] == 0
        await until_asleep(nap, 0)


@pytest.mark.parametrize("policy", [WORKSPACE, FULL_ACCESS])
async def test_a_time_limit_ends_the_whole_tree(world: MakeWorld, nap: str, policy: Json) -> None:
    async with world(transport="process") as w:
        text = f"trap '' TERM; (setsid sh -c 'sleep {nap}; :' &) ; echo begun; sleep {nap}"
        result = await ran(w, text, policy, timeoutMs=1500)
        assert (result["exitCode"], result["stdout"]) == (124, "begun\n")
        await until_asleep(nap, 0)


@pytest.mark.parametrize("policy", [WORKSPACE, FULL_ACCESS])
async def test_a_server_that_is_killed_leaves_no_command(tmp_path: Path, nap: str, policy: Json) -> None:
    command = {"command": ["sh", "-c", f"(setsid sleep {nap} &); sleep {nap}"], "timeoutMs": 60_000}
    async with Place(tmp_path).server() as server:
        params = {**command, "cwd": str(tmp_path), "sandboxPolicy": policy}
        await server.client.send("execOneOffCommand", params)
        await until_asleep(nap, 2)
        await server.kill()
        await until_asleep(nap, 0)


async def test_output_status_and_failure_of_a_command_are_distinguished(world: MakeWorld) -> None:
    async with world(transport="process") as w:
        assert await ran(w, "echo out; echo err >&2; exit 4") == {
            "exitCode": 4,
            "stdout": "out\n",
            "stderr": "err\n",
        }
        assert (await ran(w, "kill -9 $$"))["exitCode"] == 137
        assert (await ran(w, "cat; echo end"))["stdout"] == "end\n"  # stdin is empty
        much = await ran(w, "yes | head -c 8000000", FULL_ACCESS)
        assert len(much["stdout"]) < 1_100_000
        assert "bytes omitted" in much["stdout"]
        missing = await w.client.ask("execOneOffCommand", {"command": ["no-such-program"]})
        assert "exec failed" in missing["error"]["message"]
        empty = await w.client.ask("execOneOffCommand", {"command": []})
        assert empty["error"]["message"] == "command must not be empty"


async def test_a_command_of_a_turn_is_confined_as_the_turn_says(world: MakeWorld) -> None:
    text = "echo x > made; echo x > ../outside/f; cat ../outside/f"
    async with world(reply(script(text)), reply(says("ok")), transport="process") as w:
        conversation = await w.open()
        await w.client.call("sendUserTurn", w.user_turn(conversation, sandboxPolicy=WORKSPACE))
        turn = await w.client.rest_of_turn(conversation)
        assert (w.workspace / "made").exists()
    [end] = turn.of("exec_command_end")
    assert end["stdout"] == "orig"


def test_the_server_lets_itself_not_be_inspected() -> None:
    pid = os.fork()
    if pid == 0:
        refuse_inspection()
        os._exit(int(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0)))  # PR_GET_DUMPABLE
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


PATCH = "*** Begin Patch\n*** Add File: {}\n+x\n*** End Patch"


async def turn(w: World, conversation: str, cwd: Path, *roots: Path) -> list[str]:
    """Run one turn; return the warnings in it."""
    policy = {**WORKSPACE, "writable_roots": [str(root) for root in roots]}
    params = w.user_turn(conversation, cwd=str(cwd), sandboxPolicy=policy)
    await w.client.call("sendUserTurn", params)
    done = await w.client.rest_of_turn(conversation)
    return [event["message"] for event in done.of("warning")]


@pytest.mark.parametrize("at_once", [True, False], ids=["roots of one turn", "roots of two turns"])
async def test_a_folder_that_is_reached_by_a_link_stays_what_it_was(
    world: MakeWorld, tmp_path: Path, *, at_once: bool
) -> None:
    big, out = tmp_path / "big", tmp_path / "elsewhere"
    (big / "p/ws").mkdir(parents=True)
    (tmp_path / "ln").symlink_to("big/p/ws")
    async with world(
        reply(script(f"cd {big}; echo x > p/ws/mine; mv p p0 && ln -s {out} p", workdir="/")),
        reply(says("ok")),
        reply(
            script(f"echo x > {out}/ws/pwn; echo x > {tmp_path}/ln/pwn; echo x > {big}/other", workdir="/")
        ),
        reply(patches(PATCH.format("pwn"))),
        reply(calls("list_dir", {"dir_path": "/"})),
        reply(says("ok")),
        transport="process",
    ) as w:
        conversation = await w.client.open(cwd=str(tmp_path / "ln"))
        first = tmp_path / "ln" if at_once else w.workspace
        assert await turn(w, conversation, first, big) == []
        told = await turn(w, conversation, tmp_path / "ln", big)
    assert os.listdir(out / "ws") == []
    assert (big / "other").exists()
    if at_once:  # a granted folder cannot be replaced
        assert not (big / "p").is_symlink()
        assert told == []
    else:
        assert (big / "p").is_symlink()
        assert len(told) == 1
        assert str(big / "p/ws") in told[0]


@pytest.mark.parametrize("used", [True, False], ids=["used before", "only opened"])
async def test_another_conversation_does_not_choose_where_one_writes(
    world: MakeWorld, tmp_path: Path, *, used: bool
) -> None:
    proj, out = tmp_path / "proj", tmp_path / "elsewhere"
    (proj / "sub").mkdir(parents=True)
    first = [reply(script("true")), reply(says("ok"))] if used else []
    async with world(
        *first,
        reply(script(f"mv {proj}/sub {proj}/sub0 && ln -s {out} {proj}/sub", workdir="/")),
        reply(says("ok")),
        reply(script(f"echo x > {out}/pwn", workdir="/")),
        reply(patches(PATCH.format(f"{out}/pwn"))),
        reply(says("ok")),
        transport="process",
    ) as w:
        inner = await w.client.open(cwd=str(proj / "sub"))
        outer = await w.client.open(cwd=str(proj))
        if used:
            await turn(w, inner, proj / "sub")
        await turn(w, outer, proj)
        assert (proj / "sub").is_symlink()
        told = await turn(w, inner, proj / "sub")
    assert os.listdir(out) == ["ws"]
    assert len(told) == 1


async def test_one_command_outside_of_conversations_does_not_choose_for_the_next(
    world: MakeWorld, tmp_path: Path
) -> None:
    big, out = tmp_path / "big", tmp_path / "elsewhere"
    (big / "p/ws").mkdir(parents=True)
    (tmp_path / "ln").symlink_to("big/p/ws")

    async with world(transport="process") as w:
        assert (await ran(w, "echo x > mine", cwd=str(tmp_path / "ln")))["exitCode"] == 0
        assert (await ran(w, f"mv p p0 && ln -s {out} p", cwd=str(big)))["exitCode"] == 0
        assert (await ran(w, "echo x > pwn", cwd=str(tmp_path / "ln")))["exitCode"] != 0
    assert os.listdir(out / "ws") == []


async def test_the_whole_disk_as_a_root_is_refused_and_reported_and_other_roots_remain(
    world: MakeWorld, tmp_path: Path
) -> None:
    async with world(
        reply(script(f"echo x > {tmp_path}/workspace/made", workdir="/")),
        reply(says("ok")),
        transport="process",
    ) as w:
        told = await turn(w, await w.open(), w.workspace, Path("/"))
        assert (w.workspace / "made").exists()
    assert len(told) == 1
    assert told[0].startswith("Commands may not write in /:")


async def test_an_image_is_looked_for_where_the_conversation_began(world: MakeWorld, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    (tmp_path / "one/a.png").write_bytes(PNG)
    (tmp_path / "ln").symlink_to("one")
    async with world(
        reply(calls("view_image", {"path": "a.png"})), reply(says("ok")), transport="process"
    ) as w:
        conversation = await w.client.open(cwd=str(tmp_path / "ln"))
        (tmp_path / "ln").unlink()
        (tmp_path / "ln").symlink_to("two")
        params = w.user_turn(conversation, cwd=str(tmp_path / "ln"), sandboxPolicy=WORKSPACE)
        await w.client.call("sendUserTurn", params)
        done = await w.client.rest_of_turn(conversation)
    assert [event["path"] for event in done.of("view_image_tool_call")] == [str(tmp_path / "ln/a.png")]
