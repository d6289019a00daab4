"""Hooks as processes: what a model cannot make them do, and that nothing of them is left."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from app_server_protocol.encoding import Json
from tests.engine.hooks.hook_scripts import HomeHooks, trusted
from tests.support.places import Place
from tests.support.scripted_model import ScriptedModel, reply, says, script
from tests.support.thread_client import ended, notified, say, start, turn
from tests.support.waiting import until
from tests.support.world import MakeWorld

pytestmark = [pytest.mark.process, pytest.mark.scenario]

CONFINED: Json = {"approvalPolicy": "never", "sandbox": "workspace-write"}


@pytest.fixture
def hooks(tmp_path: Path) -> HomeHooks:
    return HomeHooks(tmp_path)


@pytest.mark.parametrize("how", ["before the turn", "in the turn", "a file that the command does not name"])
async def test_a_model_that_rewrites_the_script_of_a_hook_does_not_escape(
    world: MakeWorld, hooks: HomeHooks, tmp_path: Path, how: str
) -> None:
    outside = Path(os.path.realpath(tmp_path)) / "home/escaped"
    attack = f"#!/bin/sh\\ntouch {outside}; touch ran\\n"
    if how == "a file that the command does not name":
        command, target = "make check", "Makefile"
        attack = f"check:\\n\\ttouch {outside}; touch ran\\n"
    else:
        command, target = str(tmp_path / "workspace/check.sh"), "check.sh"
    hooks.command("Stop", command)
    write = script(f"printf '{attack}' > {target}; chmod +x {target}")
    files = {"check.sh": "#!/bin/sh\nexit 0\n", "Makefile": "check:\n\ttrue\n"}
    tables = hooks.tables(
        "[sandbox_workspace_write]\nexclude_slash_tmp = true\nexclude_tmpdir_env_var = true\n"
    )
    replies = [reply(write), reply(says("done")), reply(says("again", "m2"))]
    async with world(*replies, tables=tables, files=files, transport="process") as w:
        (w.workspace / "check.sh").chmod(0o755)
        thread = await start(w.client, **CONFINED)
        await say(w.client, thread)
        if how == "before the turn":
            await say(w.client, thread)
        assert (w.workspace / target).read_text().count("escaped") == 1, "the model could rewrite it"
        assert not outside.exists()
        assert notified(w, "hook/completed")


async def test_a_hook_of_a_project_has_the_rights_of_a_command_and_no_network(
    world: MakeWorld, hooks: HomeHooks, tmp_path: Path
) -> None:
    workspace = Path(os.path.realpath(tmp_path)) / "workspace"
    outside = tmp_path / "home/escaped"
    text = f"touch {outside}; touch inside; echo net=$CODEX_SANDBOX_NETWORK_DISABLED > net"
    own: dict[str, list[Json]] = {"Stop": [{"hooks": [{"type": "command", "command": text}]}]}
    path = workspace / ".codex/hooks.json"
    tables = (
        f'[projects."{workspace}"]\ntrust_level = "trusted"\n{trusted(path, own)}'
        "[sandbox_workspace_write]\nnetwork_access = true\nexclude_slash_tmp = true\n"
    )
    files = {".codex/hooks.json": json.dumps({"hooks": own})}
    async with world(reply(says("done")), tables=tables, files=files, git=True, transport="process") as w:
        await say(w.client, await start(w.client, **CONFINED))
        [ran] = notified(w, "hook/completed")
        assert ran["run"]["source"] == "project"
        assert (w.workspace / "inside").exists()
        assert (w.workspace / "net").read_text() == "net=1\n"
    assert not outside.exists()


async def test_a_server_that_is_killed_leaves_no_hook(hooks: HomeHooks, tmp_path: Path) -> None:
    hooks.add("PreToolUse", f"(setsid sleep 600 &); touch {hooks.home}/begun; sleep 600")
    place = Place(tmp_path, ScriptedModel([reply(script("true"))]), tables=hooks.tables())
    async with place.serving_model(), place.server() as server:
        await server.client.say(await server.open())
        await until(lambda: (hooks.home / "begun").exists())
        await server.kill()
        await server.gone()


async def test_a_time_limit_ends_the_whole_tree(world: MakeWorld, hooks: HomeHooks) -> None:
    hooks.add(
        "UserPromptSubmit", f"(setsid sh -c 'echo $$ > {hooks.home}/pid; sleep 600' &); sleep 600", timeout=1
    )
    tables = hooks.tables('[hooks]\non_failure = "allow"\n')
    async with world(reply(says("done")), tables=tables, transport="process") as w:
        thread = await start(w.client, approvalPolicy="never", sandbox="danger-full-access")
        id = await turn(w.client, thread)
        assert (await ended(w.client, id))["status"] == "completed"
        pid = int((hooks.home / "pid").read_text())
        await until(lambda: not Path(f"/proc/{pid}").exists())
