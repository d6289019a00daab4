"""The folder `.claude` of a project whose hooks are read from there: out of reach for commands and patches."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from app_server.engine.config.config_values import ClientFence, RequestOverrides, SettingsSource
from app_server.engine.config.settings_service import load_config
from app_server_protocol.encoding import Json
from app_server_protocol.policy import CLAUDE_FOLDER, PROTECTED_FOLDERS
from tests.support.scripted_model import calls, reply, says, script
from tests.support.thread_client import items, say, start
from tests.support.world import EXPERIMENTAL, MakeWorld

pytestmark = pytest.mark.scenario

READS = "[hooks]\nclaude_settings = true\n"
SETTINGS = f"{CLAUDE_FOLDER}/settings.json"
CONFINED: Json = {"approvalPolicy": "never", "sandbox": "workspace-write"}
PATCH = f"*** Begin Patch\n*** Add File: {SETTINGS}\n+{{}}\n*** End Patch"
CHANGE = f"*** Begin Patch\n*** Update File: {SETTINGS}\n@@\n-{{}}\n+{{}} \n*** End Patch"
PROFILE = '[permissions.mine.filesystem]\n":root" = "read"\n":workspace_roots" = "write"\n'


@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize(("tables", "written"), [(READS, False), ("", True)])
@pytest.mark.parametrize("profile", [False, True])
async def test_commands_write_it_only_where_its_hooks_are_not_read(
    world: MakeWorld, tables: str, written: bool, there: bool, profile: bool
) -> None:
    call = script(f"mkdir -p {CLAUDE_FOLDER} && echo changed > {SETTINGS}; echo beside > beside.txt")
    files = {SETTINGS: "{}\n"} if there else {}
    given: Json = {"approvalPolicy": "never", "permissions": "mine"} if profile else CONFINED
    async with world(
        reply(call),
        reply(says("done")),
        tables=f"{tables}{PROFILE}",
        files=files,
        capabilities=EXPERIMENTAL,
    ) as w:
        await say(w.client, await start(w.client, **given))
        path = w.workspace / SETTINGS
        assert (path.exists() and path.read_text() == "changed\n") is written
        assert (w.workspace / "beside.txt").exists()
        if there and not written:
            assert path.read_text() == "{}\n"


@pytest.mark.parametrize(("there", "text"), [(False, PATCH), (True, CHANGE)])
@pytest.mark.parametrize(("tables", "applied"), [(READS, False), ("", True)])
async def test_patches_change_it_only_where_its_hooks_are_not_read(
    world: MakeWorld, tables: str, applied: bool, there: bool, text: str
) -> None:
    call = calls("apply_patch", {"input": text})
    async with world(
        reply(call),
        reply(says("done")),
        tables=tables,
        files={SETTINGS: "{}\n"} if there else {},
        config={"include_apply_patch_tool": True},
    ) as w:
        await say(w.client, await start(w.client, **CONFINED))
        [item] = items(w, kind="fileChange") or [{"status": "failed"}]
        assert (item["status"] == "completed") is applied
        assert (w.workspace / SETTINGS).exists() is (there or applied)
    if not applied:
        assert "writing outside of the project" in w.model.requests[1].outputs()["c1"]


async def test_a_command_of_a_client_obeys_too(world: MakeWorld) -> None:
    async with world(tables=READS) as w:
        policy: Json = {"type": "workspaceWrite", "writableRoots": [], "networkAccess": False}
        command = ["sh", "-c", f"mkdir {CLAUDE_FOLDER}; echo x > {SETTINGS}"]
        ran = await w.client.call(
            "command/exec", {"command": command, "cwd": str(w.workspace), "sandboxPolicy": policy}
        )
        assert ran["exitCode"] != 0
        assert not (w.workspace / SETTINGS).exists()


def test_a_client_without_the_users_rights_cannot_lift_it(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(f"{READS}[app_server]\nclient_rights = false\n", encoding="utf-8")
    source = SettingsSource(home=tmp_path, cwd=Path(os.path.realpath(tmp_path)), environment={})
    config = load_config(source, RequestOverrides())
    assert isinstance(config.fence, ClientFence)
    assert config.permissions.protected_folders == (*PROTECTED_FOLDERS, CLAUDE_FOLDER)
