"""Writable roots over several turns and conversations of the real process: what one changes, no other may follow."""

import os
import sys
from pathlib import Path

import pytest

from protocol.base import Json
from tests.support.scripted_model import calls, patches, reply, runs, says
from tests.support.world import MakeWorld, World

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="the sandbox of this system is tested as text"
)

POLICY = {
    "mode": "workspace-write",
    "writable_roots": [],
    "network_access": False,
    "exclude_tmpdir_env_var": True,
    "exclude_slash_tmp": True,
}
PATCH = "*** Begin Patch\n*** Add File: {}\n+x\n*** End Patch"
PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c49444154789c63f8cfc0000003"
    "010100c9fe92ef0000000049454e44ae426082"
)


@pytest.fixture(autouse=True)
def outside(tmp_path: Path) -> None:
    (tmp_path / "outside/ws").mkdir(parents=True)


async def turn(w: World, conversation: str, cwd: Path, *roots: Path) -> list[str]:
    """One turn; the warnings that were told in it."""
    policy = {**POLICY, "writable_roots": [str(root) for root in roots]}
    params = w.user_turn(conversation, cwd=str(cwd), sandboxPolicy=policy)
    await w.client.call("sendUserTurn", params)
    done = await w.client.rest_of_turn(conversation)
    return [event["message"] for event in done.of("warning")]


def shell(script: str, cwd: str = "/") -> Json:
    return runs("sh", "-c", script, workdir=cwd)


@pytest.mark.parametrize("at_once", [True, False], ids=["roots of one turn", "roots of two turns"])
async def test_a_folder_that_is_reached_by_a_link_stays_what_it_was(
    world: MakeWorld, tmp_path: Path, *, at_once: bool
) -> None:
    big, out = tmp_path / "big", tmp_path / "outside"
    (big / "p/ws").mkdir(parents=True)
    (tmp_path / "ln").symlink_to("big/p/ws")
    async with world(
        reply(shell(f"cd {big}; echo x > p/ws/mine; mv p p0 && ln -s {out} p")),
        reply(says("ok")),
        reply(shell(f"echo x > {out}/ws/pwn; echo x > {tmp_path}/ln/pwn; echo x > {big}/other")),
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
    if at_once:  # what is granted holds its place
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
    proj, out = tmp_path / "proj", tmp_path / "outside"
    (proj / "sub").mkdir(parents=True)
    first = [reply(shell("true")), reply(says("ok"))] if used else []
    async with world(
        *first,
        reply(shell(f"mv {proj}/sub {proj}/sub0 && ln -s {out} {proj}/sub")),
        reply(says("ok")),
        reply(shell(f"echo x > {out}/pwn")),
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
    big, out = tmp_path / "big", tmp_path / "outside"
    (big / "p/ws").mkdir(parents=True)
    (tmp_path / "ln").symlink_to("big/p/ws")

    async with world(transport="process") as w:

        async def ran(script: str, cwd: Path) -> Json:
            params = {"command": ["sh", "-c", script], "cwd": str(cwd), "sandboxPolicy": POLICY}
            return await w.client.call("execOneOffCommand", params)

        assert (await ran("echo x > mine", tmp_path / "ln"))["exitCode"] == 0
        assert (await ran(f"mv p p0 && ln -s {out} p", big))["exitCode"] == 0
        assert (await ran("echo x > pwn", tmp_path / "ln"))["exitCode"] != 0
    assert os.listdir(out / "ws") == []


async def test_the_whole_disk_as_a_root_is_refused_and_reported_and_other_roots_remain(
    world: MakeWorld, tmp_path: Path
) -> None:
    async with world(
        reply(shell(f"echo x > {tmp_path}/workspace/made")),
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
        params = w.user_turn(conversation, cwd=str(tmp_path / "ln"), sandboxPolicy=POLICY)
        await w.client.call("sendUserTurn", params)
        done = await w.client.rest_of_turn(conversation)
    assert [event["path"] for event in done.of("view_image_tool_call")] == [str(tmp_path / "ln/a.png")]
