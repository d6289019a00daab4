"""Patches that a script applies with the `apply_patch` program: in the command's sandbox, with its rights."""

import sys

import pytest

from app_server_protocol.encoding import Json
from tests.support.scripted_model import reply, runs, says
from tests.support.world import MakeWorld, World

pytestmark = [pytest.mark.scenario, pytest.mark.skipif(sys.platform != "linux", reason="the layers of Linux")]

CONFINED = {"sandbox_mode": "workspace-write", "approval_policy": "never"}
NO_TEMPORARY = "[sandbox_workspace_write]\nexclude_slash_tmp = true\nexclude_tmpdir_env_var = true\n"


def applies(patch: str, call_id: str = "c1", *, before: str = "echo first; ") -> Json:
    script = f"{before}apply_patch <<'EOF'\n*** Begin Patch\n{patch}\n*** End Patch\nEOF"
    return runs("bash", "-c", script, call_id=call_id)


async def test_a_script_applies_a_patch_in_the_sandbox(world: MakeWorld) -> None:
    patch = "*** Add File: sub/new\n+x\n*** Update File: old\n@@\n-one\n+two"
    async with world(
        reply(applies(patch)), reply(says("ok")), config=CONFINED, tables=NO_TEMPORARY, files={"old": "one\n"}
    ) as w:
        turn = await w.client.turn(await w.open())
        assert (w.workspace / "sub" / "new").read_text() == "x\n"
        assert (w.workspace / "old").read_text() == "two\n"
    (end,) = turn.of("exec_command_end")
    assert end["stdout"] == "first\nSuccess. Updated the following files:\nA sub/new\nM old\n"
    assert turn.of("patch_apply_begin") == [], "it is a command"


@pytest.mark.parametrize(
    ("patch", "where"),
    [
        ("*** Add File: {root}/outside/new\n+x", "outside/new"),
        ("*** Update File: {root}/outside/old\n@@\n-one\n+two", "outside/old"),
        ("*** Add File: .git/hooks/pre-commit\n+x", "workspace/.git/hooks/pre-commit"),
        ("*** Add File: .codex/config.toml\n+x", "workspace/.codex/config.toml"),
        ("*** Add File: link/new\n+x", "outside/new"),
        ("*** Update File: old\n*** Move to: {root}/outside/moved\n@@\n-one\n+two", "outside/moved"),
    ],
)
async def test_what_the_sandbox_fences_stays_as_it_is(world: MakeWorld, patch: str, where: str) -> None:
    def before(w: World) -> None:
        (w.root / "outside").mkdir()
        (w.root / "outside" / "old").write_text("one\n")
        (w.workspace / "link").symlink_to(w.root / "outside")

    def there(w: World) -> str | None:
        place = w.root / where
        return place.read_text() if place.exists() else None

    async with world(
        config=CONFINED, tables=NO_TEMPORARY, files={"old": "one\n"}, git=True, before=before
    ) as w:
        was = there(w)
        whole = patch.format(root=w.root) + "\n*** Add File: beside\n+x"
        w.model.replies += [reply(applies(whole)), reply(says("ok"))]
        turn = await w.client.turn(await w.open())
        assert there(w) == was
        assert not (w.workspace / "beside").exists(), "all of it or nothing"
        assert (w.workspace / "old").read_text() == "one\n"
    (end,) = turn.of("exec_command_end")
    assert end["exit_code"] == 1
    assert end["stderr"].startswith("Failed to ")


async def test_a_command_can_neither_change_nor_hide_the_program(world: MakeWorld) -> None:
    """This holds even if the server's home is in the workspace, and against a program of the same name."""
    attack = 'p=$(command -v apply_patch); echo "#!/bin/sh" > $p; rm -f $p; mv ${p%/*} /tmp/x; echo $p; true'
    fake = {"apply_patch": "#!/bin/sh\necho fake\n"}
    replies = (
        reply(runs("sh", "-c", attack)),
        reply(applies("*** Add File: new\n+x", "c2")),
        reply(says("ok")),
    )
    async with world(*replies, config=CONFINED, files=fake) as w:
        (w.workspace / "apply_patch").chmod(0o755)
        turn = await w.client.turn(await w.client.open(cwd=str(w.root)))
        assert (w.root / "new").read_text() == "x\n"
    found = turn.of("exec_command_end")[0]["stdout"].strip()
    assert found.startswith(str(w.home / "tmp"))


async def test_read_only_is_read_only(world: MakeWorld) -> None:
    config = {"sandbox_mode": "read-only", "approval_policy": "never"}
    async with world(reply(applies("*** Add File: new\n+x")), reply(says("ok")), config=config) as w:
        turn = await w.client.turn(await w.open())
        assert not (w.workspace / "new").exists()
    (end,) = turn.of("exec_command_end")
    assert (end["exit_code"], end["stderr"]) == (1, "Failed to write file new\n")


async def test_where_nothing_is_trusted_the_script_is_asked_about(world: MakeWorld) -> None:
    config = {"sandbox_mode": "workspace-write", "approval_policy": "untrusted"}
    async with world(reply(applies("*** Add File: new\n+x")), reply(says("ok")), config=config) as w:
        w.client.decide("execCommandApproval", "denied")
        await w.client.turn(await w.open())
        assert not (w.workspace / "new").exists()
        asked = [m["method"] for m in w.client.received() if "id" in m and "method" in m]
        assert asked == ["execCommandApproval"]
