"""Hooks over the thread API: their list, and how a client records that the user agrees to them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import tomli

from app_server.engine.hooks.trust import FileDigests
from app_server_protocol.encoding import Json
from tests.support.client import Refused
from tests.support.world import MakeWorld, World

pytestmark = pytest.mark.scenario

OTHERS: list[dict[str, Any]] = [
    {"type": "mcp_tool", "server": "s", "tool": "t", "input": {}},
    {"type": "prompt", "prompt": "is this wise?"},
    {"type": "agent"},
]


def with_hooks(*handlers: Mapping[str, Any], matcher: str = "Bash") -> str:
    return json.dumps({"hooks": {"PreToolUse": [{"matcher": matcher, "hooks": [*handlers]}]}})


def command(line: str, **more: Any) -> dict[str, Any]:
    return {"type": "command", "command": line, **more}


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


async def listed(w: World, **params: Json) -> Json:
    [entry] = (await w.client.call("hooks/list", params or {"cwds": [str(w.workspace)]}))["data"]
    return entry


async def statuses(w: World) -> list[str]:
    return [hook["trustStatus"] for hook in (await listed(w))["hooks"]]


def states(w: World) -> Json:
    return tomli.loads((w.home / "config.toml").read_text("utf-8")).get("hooks", {}).get("state")


async def test_each_kind_of_hook_is_listed_in_the_words_of_the_reference(world: MakeWorld) -> None:
    async with world() as w:
        path = write(
            w.home / "hooks.json", with_hooks(command("guard", timeout=5, statusMessage="S"), *OTHERS)
        )
        entry = await listed(w)
        hooks = entry["hooks"]
        assert hooks[0] == {
            "key": f"{path}:pre_tool_use:0:0",
            "eventName": "preToolUse",
            "handlerType": "command",
            "command": "guard",
            "async": False,
            "matcher": "Bash",
            "timeoutSec": 5,
            "statusMessage": "S",
            "additionalContextLimit": None,
            "sourcePath": str(path),
            "source": "user",
            "pluginId": None,
            "environmentId": None,
            "displayOrder": 0,
            "enabled": True,
            "isManaged": False,
            "currentHash": hooks[0]["currentHash"],
            "trustStatus": "untrusted",
        }
        assert [(hook["handlerType"], hook["enabled"]) for hook in hooks[1:]] == [
            ("mcpTool", False),
            ("prompt", False),
            ("agent", False),
        ]
        assert (hooks[1]["server"], hooks[1]["tool"]) == ("s", "t")
        assert len(entry["warnings"]) == 3
        assert entry["errors"] == []


async def test_mistakes_are_errors_of_their_file(world: MakeWorld) -> None:
    async with world() as w:
        path = write(w.home / "hooks.json", with_hooks(command("guard"), matcher="("))
        entry = await listed(w)
        assert entry["hooks"] == []
        [error] = entry["errors"]
        assert error["path"] == str(path)
        assert "not closed" in error["message"]
        with (w.home / "config.toml").open("a") as file:
            file.write('\n[hooks]\non_failure = "blokc"\n')
        [error] = (await listed(w))["errors"]
        assert "on_failure" in error["message"]


async def test_hooks_of_a_project_are_listed_once_it_is_trusted(world: MakeWorld) -> None:
    async with world() as w:
        write(w.workspace / ".codex/hooks.json", with_hooks(command("guard")))
        assert await statuses(w) == []
        trust = {"keyPath": "projects", "value": {str(w.workspace): {"trust_level": "trusted"}}}
        await w.client.call("config/value/write", {**trust, "mergeStrategy": "upsert"})
        assert await statuses(w) == ["untrusted"]
        assert (await listed(w))["hooks"][0]["source"] == "project"


@pytest.mark.parametrize("form", ["state", "entry", "hash", "batch", "table"])
async def test_consent_is_written_with_the_files_that_were_listed(world: MakeWorld, form: str) -> None:
    async with world() as w:
        script = write(w.workspace / "guard.sh", "exit 0")
        write(w.home / "hooks.json", with_hooks(command("bash guard.sh")))
        [hook] = (await listed(w))["hooks"]
        key, digest, files = (
            hook["key"],
            hook["currentHash"],
            {str(script): FileDigests().digest(str(script))},
        )
        quoted = json.dumps(key)
        edit = {
            "state": {"keyPath": "hooks.state", "value": {key: {"trusted_hash": digest}}},
            "entry": {"keyPath": f"hooks.state.{quoted}", "value": {"trusted_hash": digest}},
            "hash": {"keyPath": f"hooks.state.{quoted}.trusted_hash", "value": digest},
            "batch": {"keyPath": f"hooks.state.{quoted}", "value": {"trusted_hash": digest}},
            "table": {"keyPath": "hooks", "value": {"state": {key: {"trusted_hash": digest}}}},
        }[form] | {"mergeStrategy": "upsert"}
        if form == "batch":
            await w.client.call("config/batchWrite", {"edits": [edit], "reloadUserConfig": True})
        else:
            await w.client.call("config/value/write", edit)
        assert states(w) == {key: {"trusted_hash": digest, "trusted_files": files}}
        assert await statuses(w) == ["trusted"]

        script.write_text("exit 1", encoding="utf-8")
        assert await statuses(w) == ["modified"]
        await w.client.call("config/value/write", edit)
        assert await statuses(w) == ["trusted"]


async def test_a_script_that_changed_between_the_list_and_the_consent_is_not_agreed_to(
    world: MakeWorld,
) -> None:
    async with world() as w:
        script = write(w.workspace / "guard.sh", "exit 0")
        write(w.home / "hooks.json", with_hooks(command("./guard.sh")))
        [hook] = (await listed(w))["hooks"]
        script.write_text("something else", encoding="utf-8")
        value = {hook["key"]: {"trusted_hash": hook["currentHash"]}}
        await w.client.call(
            "config/value/write", {"keyPath": "hooks.state", "value": value, "mergeStrategy": "upsert"}
        )
        assert await statuses(w) == ["modified"]


async def test_consent_for_one_thread_shows_in_its_list(world: MakeWorld) -> None:
    async with world() as w:
        write(w.home / "hooks.json", with_hooks(command("guard")))
        [hook] = (await listed(w))["hooks"]
        config = {"hooks.state": {hook["key"]: {"trusted_hash": hook["currentHash"]}}}
        thread = (await w.client.call("thread/start", {"config": config}))["thread"]["id"]
        assert [each["trustStatus"] for each in (await listed(w, threadId=thread))["hooks"]] == ["trusted"]
        assert await statuses(w) == ["untrusted"]
        assert states(w) is None


async def test_hooks_that_a_threads_config_gives_are_in_the_list_of_the_thread_alone(
    world: MakeWorld,
) -> None:
    """The key, the source and the refusal are those of codex 0.171."""
    key = "/<session-flags>/config.toml:pre_tool_use:0:0"
    groups: Json = [{"matcher": "Bash", "hooks": [command("/bin/true", timeout=5)]}]
    digest = "sha256:327d4d5c8268c5ed60e372c070095b2a02d849e830d70fa1f34916ff1c7cf3bd"
    async with world() as w:
        write(w.home / "hooks.json", with_hooks(command("guard")))
        config = {"hooks.PreToolUse": groups, "hooks.state": {key: {"trusted_hash": digest}}}
        thread = (await w.client.call("thread/start", {"config": config}))["thread"]["id"]
        entry = await listed(w, threadId=thread)
        assert entry["cwd"] == str(w.workspace)
        shown = [(each["key"], each["source"], each["trustStatus"]) for each in entry["hooks"]]
        assert shown == [
            (f"{w.home}/hooks.json:pre_tool_use:0:0", "user", "untrusted"),
            (key, "sessionFlags", "trusted"),
        ]
        assert [each["source"] for each in (await listed(w))["hooks"]] == ["user"]
        with pytest.raises(Refused, match="specify either threadId or cwds"):
            await listed(w, threadId=thread, cwds=[str(w.workspace)])


async def test_a_client_without_the_users_rights_agrees_to_nothing(world: MakeWorld) -> None:
    def fence(w: World) -> None:
        with (w.home / "config.toml").open("a") as file:
            file.write("\n[app_server]\nclient_rights = false\n")

    async with world(before=fence) as w:
        write(w.home / "hooks.json", with_hooks(command("guard")))
        [hook] = (await listed(w))["hooks"]
        value = {hook["key"]: {"trusted_hash": hook["currentHash"]}}
        with pytest.raises(Refused, match="only the user changes `hooks`"):
            await w.client.call(
                "config/value/write", {"keyPath": "hooks.state", "value": value, "mergeStrategy": "upsert"}
            )
        with pytest.raises(Refused, match="hooks"):
            await w.client.call("thread/start", {"config": {"hooks.state": value}})
        assert await statuses(w) == ["untrusted"]
