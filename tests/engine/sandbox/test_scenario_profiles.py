"""Permission profiles in whole conversations: how they are chosen, shown and stored, and what the model can read."""

import json
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from app_server.engine.tools.registry import GOAL_TOOLS, TOOLS, BuiltinTool
from app_server_protocol.encoding import Json
from tests.support.client import Refused
from tests.support.scripted_model import calls, patches, reply, says, script
from tests.support.thread_client import ended, notified, say, start, turn
from tests.support.world import EXPERIMENTAL, MakeWorld, World

pytestmark = pytest.mark.scenario

SECRET = "sentinel-of-a-secret"
FILES = {
    "private/key": SECRET,
    "a.env": SECRET,
    "plain": "plain text\n",
    "AGENTS.md": "words of the project\n",
}
TABLES = """
[permissions.p]
extends = ":workspace"
description = "Sees no keys"
[permissions.p.filesystem]
":workspace_roots" = { private = "deny", "*.env" = "deny" }
[permissions.q]
extends = "p"
[permissions.q.filesystem]
":workspace_roots" = { "AGENTS.md" = "deny" }
[permissions.broken]
extends = "nobody"
"""
P = {"default_permissions": "p", "approval_policy": "on-request"}


async def test_profiles_are_listed_by_pages(world: MakeWorld) -> None:
    async with world(config=P, tables=TABLES) as w:
        first = await w.client.call("permissionProfile/list", {"limit": 4})
        rest = await w.client.call("permissionProfile/list", {"cursor": first["nextCursor"]})
        assert first["nextCursor"] == "4"
        assert [(each["id"], each["allowed"]) for each in (*first["data"], *rest["data"])] == [
            (":read-only", True),
            (":workspace", True),
            (":danger-full-access", True),
            ("broken", False),
            ("p", True),
            ("q", True),
        ]
        assert rest["data"][0]["description"] == "Sees no keys"


async def test_a_thread_and_its_turns_are_given_profiles_by_name(world: MakeWorld) -> None:
    async with world(reply(says("ok")), config=P, tables=TABLES, capabilities=EXPERIMENTAL) as w:
        opened = await w.client.call("thread/start", {})
        assert opened["activePermissionProfile"] == {"id": "p", "extends": ":workspace"}
        assert opened["sandbox"]["type"] == "workspaceWrite"
        thread = opened["thread"]["id"]
        await say(w.client, thread, permissions="q")
        [told] = notified(w, "thread/settings/updated")
        assert told["threadSettings"]["activePermissionProfile"] == {"id": "q", "extends": "p"}
        for method, params in (
            ("thread/start", {}),
            ("thread/resume", {"threadId": thread}),
            ("thread/fork", {"threadId": thread}),
            ("turn/start", {"threadId": thread, "input": [{"type": "text", "text": "go"}]}),
            ("thread/settings/update", {"threadId": thread}),
        ):
            text = "'failed to load configuration: default_permissions refers to undefined profile `zz`'"
            if method != "thread/resume":  # an open thread goes on
                with pytest.raises(Refused, match=text):
                    await w.client.call(method, {**params, "permissions": "zz"})
        run = {"command": ["true"], "permissionProfile": "zz"}
        with pytest.raises(
            Refused, match="'invalid permission profile: default_permissions refers to undefined"
        ):
            await w.client.call("command/exec", run)
        shown = await w.client.call(
            "command/exec", {"command": ["cat", "plain", "a.env"], "permissionProfile": "p"}
        )
        assert SECRET not in shown["stdout"]


PATCH = "*** Begin Patch\n*** Update File: a.env\n@@\n-{}\n+x\n*** End Patch"
NEW = "*** Begin Patch\n*** Add File: private/new\n+x\n*** End Patch"


async def test_the_model_reads_nothing_that_is_hidden_in_any_way(world: MakeWorld) -> None:
    ways = [
        script("cat private/key a.env plain", "c1"),
        calls("view_image", {"path": "private/key"}, "c2"),
        patches(PATCH.format("sentinel"), "c3"),
        patches(NEW, "c4"),
    ]
    replies = [*(reply(each) for each in ways), reply(says("done"))]
    async with world(*replies, config=P, tables=TABLES, files=FILES, capabilities=EXPERIMENTAL) as w:
        git(w, "init", "-q")
        await say(w.client, await start(w.client))
        outputs = w.model.requests[-1].outputs()
        assert SECRET not in json.dumps([request.body for request in w.model.requests])
        assert "plain text" in outputs["c1"]
        assert "the permission profile `p` hides" in outputs["c3"]
        assert "the permission profile `p` hides" in outputs["c4"]
        assert "words of the project" in json.dumps(w.model.requests[0].body)
        assert (w.workspace / "a.env").read_text() == SECRET
        assert not (w.workspace / "private/new").exists()
        # The snapshot for undo is in the repository, which commands may read.
        assert SECRET not in git(w, "cat-file", "--batch-all-objects", "--batch")


def git(w: World, *words: str) -> str:
    run = subprocess.run(["git", *words], cwd=w.workspace, check=True, capture_output=True)
    return run.stdout.decode("utf-8", "replace")


async def test_documents_of_the_project_that_are_hidden_are_not_read(world: MakeWorld) -> None:
    async with world(reply(says("ok")), config=P, tables=TABLES, files=FILES, capabilities=EXPERIMENTAL) as w:
        await say(w.client, await start(w.client, permissions="q"))
        assert "words of the project" not in json.dumps(w.model.requests[0].body)


READ_BY = {
    "shell_tools": "a command in the sandbox",
    "file_tools": "a program in the sandbox",
    "patch_tool": "the patch is refused",
    "mcp_tools": "an MCP server",
    "user_tools": "reads no file",
}
"""Way in which the tools of the model read files, by the module that serves them."""


def module_of(tool: BuiltinTool) -> str | None:
    """Return the name of the module that serves a tool; None if the provider does."""
    return None if tool.module is None else vars(tool.module)["__name__"].rpartition(".")[2]


def test_it_is_known_of_every_tool_how_it_reads_files() -> None:
    assert {module_of(tool) for tool in (*TOOLS, *GOAL_TOOLS)} - {None} == READ_BY.keys()


@pytest.mark.parametrize("name", [tool.name for tool in TOOLS if module_of(tool) == "file_tools"])
async def test_no_tool_that_reads_reads_what_is_hidden(world: MakeWorld, name: str) -> None:
    features = {f"features.{each}": True for each in ("grep_files", "read_file", "list_dir")}
    async with world(config={**P, **features}, tables=TABLES, files=FILES, capabilities=EXPERIMENTAL) as w:
        arguments = {
            "grep_files": {"pattern": SECRET[:8], "path": str(w.workspace)},
            "read_file": {"file_path": str(w.workspace / "a.env")},
            "list_dir": {"dir_path": str(w.workspace / "private")},
            "view_image": {"path": "private/key"},
        }[name]
        w.model.replies.extend([reply(calls(name, arguments, "c")), reply(says("ok"))])
        await say(w.client, await start(w.client))
        output = w.model.requests[-1].outputs()["c"]
        assert "unsupported" not in output
        assert SECRET not in json.dumps([request.body for request in w.model.requests])
        if name == "list_dir":
            assert "key" not in output.replace("private", "")


def skill(name: str) -> str:
    return f"---\nname: {name}\ndescription: DESCRIPTION-{name}.\n---\nBODY-{name}\n"


async def test_skills_that_are_hidden_are_neither_told_nor_handed_over(world: MakeWorld) -> None:
    files = {f".agents/skills/{name}/SKILL.md": skill(name) for name in ("seen", "private")}
    files["../home/skills/own/SKILL.md"] = skill("own")
    tables = f"""{TABLES}[permissions.s.filesystem]
":root" = "read"
":workspace_roots" = {{ "." = "write", ".agents/skills/private" = "deny" }}
"""
    replies = (reply(says("ok")), reply(says("ok")))
    async with world(*replies, config=P, tables=tables, files=files, capabilities=EXPERIMENTAL) as w:
        git(w, "init", "-q")
        thread = await start(w.client)
        await say(w.client, thread)
        assert "DESCRIPTION-private" in json.dumps(w.model.requests[0].body)
        hidden = str(w.workspace / ".agents/skills/private/SKILL.md")
        handed = [
            {"type": "skill", "name": "private", "path": hidden},
            {"type": "skill", "name": "own", "path": str(w.home / "skills/own/SKILL.md")},
        ]
        # The rules of the turn with the skills count, not those of the turn before.
        await say(w.client, thread, permissions="s", input=handed)
        [told] = notified(w, "warning")
        assert (
            told["message"] == f"The skill private ({hidden}) is not used: the permission profile hides it."
        )
        body = json.dumps(w.model.requests[1].body)
        assert "BODY-private" not in body
        assert "BODY-own" in body
        news = body.split("<skills_instructions>")[1:]
        assert ["DESCRIPTION-private" in each for each in news] == [True, False]
        assert ["DESCRIPTION-seen" in each for each in news] == [True, True]


async def test_a_yes_does_not_lift_a_deny_and_the_question_says_so(world: MakeWorld) -> None:
    command = "cat a.env; echo x > ../outside; cat ../outside"
    replies = (reply(script(command, with_escalated_permissions=True)), reply(says("ok")))
    async with world(*replies, config=P, tables=TABLES, files=FILES, capabilities=EXPERIMENTAL) as w:
        id = await turn(w.client, await start(w.client))
        asked = await w.client.expect(lambda m: m.get("method") == "item/commandExecution/requestApproval")
        assert "files that the permission profile hides stay hidden" in asked["params"]["reason"]
        await w.client.answer(asked, {"decision": "accept"})
        await ended(w.client, id)
        [output] = w.model.requests[-1].outputs().values()
        assert SECRET not in output
        assert (w.root / "outside").read_text() == "x\n"


async def test_a_patch_where_nothing_is_shown_is_asked_about_and_written(
    world: MakeWorld, elsewhere: Path
) -> None:
    new = f"*** Begin Patch\n*** Add File: {elsewhere}/new\n+x\n*** End Patch"
    old = f"*** Begin Patch\n*** Update File: {elsewhere}/key\n@@\n-{SECRET[:8]}\n+x\n*** End Patch"
    replies = (reply(patches(new, "c1")), reply(patches(old, "c2")), reply(says("ok")))
    config = {**P, "default_permissions": "shown"}
    tables = f'{TABLES}[permissions.shown.filesystem]\n":minimal" = "read"\n":workspace_roots" = "write"\n'
    async with world(*replies, config=config, tables=tables, capabilities=EXPERIMENTAL) as w:
        id = await turn(w.client, await start(w.client))
        asked = await w.client.expect(lambda m: m.get("method") == "item/fileChange/requestApproval")
        await w.client.answer(asked, {"decision": "accept"})
        await ended(w.client, id)
        assert "the permission profile `shown` hides" in w.model.requests[-1].outputs()["c2"]
        assert (elsewhere / "new").read_text() == "x\n"
        assert (elsewhere / "key").read_text() == SECRET


@pytest.fixture
def elsewhere() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        (Path(folder) / "key").write_text(SECRET)
        yield Path(folder)


async def test_the_model_is_told_the_rules(world: MakeWorld) -> None:
    async with world(reply(says("ok")), config=P, tables=TABLES, capabilities=EXPERIMENTAL) as w:
        await say(w.client, await start(w.client))
        told = json.dumps(w.model.requests[0].body)
        assert "<special>:workspace_roots/private</special>" in told
        assert 'access=\\"deny\\" escalatable=\\"false\\"' in told
        assert "sandbox_mode" not in told


async def test_a_thread_goes_on_with_the_profile_of_its_name(world: MakeWorld) -> None:
    async with world(reply(says("ok")), config=P, tables=TABLES, capabilities=EXPERIMENTAL) as w:
        thread = await start(w.client)
        await say(w.client, thread, permissions="q")
        [stored] = w.home.glob("sessions/**/rollout-*.jsonl")
        context = next(line for line in map(json.loads, stored.open()) if line["type"] == "turn_context")
        assert context["payload"]["active_permission_profile"] == {"id": "q", "extends": "p"}
        assert context["payload"]["sandbox_policy"]["mode"] == "workspace-write"
        denied = {"path": {"type": "glob_pattern", "pattern": f"{w.workspace}/*.env"}, "access": "deny"}
        assert denied in context["payload"]["permission_profile"]["file_system"]["entries"]
        await w.client.call("thread/archive", {"threadId": thread})
        await w.client.call("thread/unarchive", {"threadId": thread})
        opened = await w.client.call("thread/fork", {"threadId": thread})
        assert opened["activePermissionProfile"] == {"id": "q", "extends": "p"}
        config = w.home / "config.toml"
        config.write_text(config.read_text().replace("[permissions.q", "[permissions.r"))
        opened = await w.client.call("thread/resume", {"threadId": thread})
        assert opened["activePermissionProfile"] == {"id": "p", "extends": ":workspace"}
        warned = await w.client.expect(
            lambda m: m.get("method") == "warning" and "`q`" in m["params"]["message"]
        )
        assert "the configured one, `p`, holds" in warned["params"]["message"]


async def test_a_fenced_client_chooses_no_profile_that_shows_more(world: MakeWorld) -> None:
    tables = f"{TABLES}[app_server]\nclient_rights = false\n"
    async with world(config=P, tables=tables, files=FILES, capabilities=EXPERIMENTAL) as w:
        wider: list[Json] = [
            {"permissions": ":workspace"},
            {"permissions": ":read-only"},
            {"permissions": ":danger-full-access"},
            {"sandbox": "workspace-write"},
            {"config": {"permissions.p.filesystem": {}}},
        ]
        for params in wider:
            with pytest.raises(Refused, match="client_rights"):
                await w.client.call("thread/start", params)
        allowed: Json = {each["id"]: each["allowed"] for each in (await listed(w))}
        assert allowed == {
            ":read-only": False,
            ":workspace": False,
            ":danger-full-access": False,
            "broken": False,
            "p": True,
            "q": True,
        }
        await w.client.call("thread/start", {"permissions": "q"})


async def listed(w: World) -> list[Json]:
    data: list[Json] = (await w.client.call("permissionProfile/list", {}))["data"]
    return data
