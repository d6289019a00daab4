"""What a user agreed to runs, and nothing else; and a thread says so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app_server.engine.hooks.hook_entries import HookEntry, read_entries
from app_server_protocol.encoding import Json
from tests.support.scripted_model import patches, reply, says, script
from tests.support.thread_client import ended, notified, say, start, turn
from tests.support.world import EXPERIMENTAL, MakeWorld, World

pytestmark = pytest.mark.scenario

FREE: Json = {"approvalPolicy": "never", "sandbox": "danger-full-access"}


def write_hooks(path: Path, command: str, event: str = "UserPromptSubmit") -> None:
    path.parent.mkdir(exist_ok=True)
    handler = {"type": "command", "command": command}
    path.write_text(json.dumps({"hooks": {event: [{"hooks": [handler]}]}}), encoding="utf-8")


async def listed(w: World) -> Json:
    [entry] = (await w.client.call("hooks/list", {"cwds": [str(w.workspace)]}))["data"]
    [hook] = entry["hooks"]
    return hook


async def agree(w: World, hook: Json) -> None:
    value = {hook["key"]: {"trusted_hash": hook["currentHash"]}}
    edit = {"keyPath": "hooks.state", "value": value, "mergeStrategy": "upsert"}
    await w.client.call("config/value/write", edit)


def about_hooks(w: World) -> list[str]:
    return [each["message"] for each in notified(w, "warning") if "hook" in each["message"]]


async def test_a_thread_says_once_that_hooks_do_not_run(world: MakeWorld) -> None:
    async with world(*(reply(says("well")) for _ in range(3)), capabilities=EXPERIMENTAL) as w:
        write_hooks(w.home / "hooks.json", f"echo ran >> {w.workspace}/ran.log")
        thread = await start(w.client, **FREE)
        await say(w.client, thread)
        await say(w.client, thread)
        [warning] = about_hooks(w)
        assert warning.startswith("1 hook does not run (you have not agreed to it yet)")
        assert str(w.home / "hooks.json") in warning
        assert not (w.workspace / "ran.log").exists()
        # Consent counts from the next turn of a thread that is open.
        await agree(w, await listed(w))
        await say(w.client, thread)
        assert (w.workspace / "ran.log").read_text() == "ran\n"
        assert len(about_hooks(w)) == 1


async def test_an_editor_lists_agrees_for_the_thread_and_the_hook_runs_each_turn(world: MakeWorld) -> None:
    """The way of VS Code's agent host: the consent is in the configuration of the thread."""

    def trust(w: World) -> None:
        with (w.home / "config.toml").open("a") as file:
            file.write(f'\n[projects."{w.workspace}"]\ntrust_level = "trusted"\n')

    async with world(reply(says("1")), reply(says("2")), before=trust, capabilities=EXPERIMENTAL) as w:
        write_hooks(w.workspace / ".codex/hooks.json", f"echo ran >> {w.workspace}/ran")
        hook = await listed(w)
        state = {"hooks.state": {hook["key"]: {"trusted_hash": hook["currentHash"]}}}
        thread = await start(w.client, config=state, sandbox="workspace-write", approvalPolicy="never")
        await say(w.client, thread)
        await say(w.client, thread)
        assert (w.workspace / "ran").read_text() == "ran\nran\n"
        assert about_hooks(w) == []


@pytest.mark.parametrize("agreed_by_the_server", [True, False])
async def test_a_script_that_the_model_rewrote_does_not_run(
    world: MakeWorld, *, agreed_by_the_server: bool
) -> None:
    """In codex 0.171 it runs, outside of the sandbox."""
    rewrite = script("echo 'echo stolen > stolen.txt' > guard.sh")
    replies = (reply(rewrite), reply(says("well")))
    async with world(*replies, capabilities=EXPERIMENTAL, files={"guard.sh": "echo fine"}) as w:
        write_hooks(w.home / "hooks.json", "sh guard.sh")
        hook = await listed(w)
        config: Json = {}
        if agreed_by_the_server:
            await agree(w, hook)
        else:
            config = {"hooks.state": {hook["key"]: {"trusted_hash": hook["currentHash"]}}}
        thread = await start(w.client, config=config, **FREE)
        await say(w.client, thread)
        await say(w.client, thread)
        # It guards messages, so this one is blocked.
        assert [each["run"]["status"] for each in notified(w, "hook/completed")] == ["completed", "failed"]
        assert len(w.model.requests) == 2
        assert not (w.workspace / "stolen.txt").exists()
        assert f"changed since you agreed: {w.workspace}/guard.sh" in about_hooks(w)[0]


@pytest.mark.parametrize("policy", ["never", "on-request"])
async def test_a_guard_whose_script_the_model_rewrote_still_guards(world: MakeWorld, policy: str) -> None:
    """It is not run, and what it guards is asked about, or blocked where nobody is asked."""
    rewrite, make = script("echo 'exit 0' > guard.sh"), script("echo made > made.txt", "c2")
    replies = (reply(rewrite), reply(says("well")), reply(make), reply(says("again")))
    async with world(*replies, capabilities=EXPERIMENTAL, files={"guard.sh": "exit 0 # v1"}) as w:
        write_hooks(w.home / "hooks.json", "sh guard.sh", "PreToolUse")
        await agree(w, await listed(w))
        thread = await start(w.client, **{**FREE, "approvalPolicy": policy})
        await say(w.client, thread)
        assert (w.workspace / "guard.sh").read_text() == "exit 0\n"
        id = await turn(w.client, thread)
        if policy == "on-request":
            question = await w.client.expect("item/commandExecution/requestApproval")
            assert "changed since you agreed to it" in question["params"]["reason"]
            await w.client.answer(question, {"decision": "decline"})
        await ended(w.client, id)
        assert not (w.workspace / "made.txt").exists()


async def test_a_hook_file_that_a_turn_changes_counts_from_the_next_turn(world: MakeWorld) -> None:
    other = json.dumps(
        {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "echo stop > stop.txt"}]}]}}
    )
    async with world(reply(says("well")), reply(says("again")), capabilities=EXPERIMENTAL) as w:
        write_hooks(w.home / "hooks.json", "true")
        await agree(w, await listed(w))
        thread = await start(w.client, **FREE)
        await say(w.client, thread)
        (w.home / "hooks.json").write_text(other)
        await say(w.client, thread)
        assert [each["run"]["eventName"] for each in notified(w, "hook/completed")] == ["userPromptSubmit"]
        assert "you have not agreed" in about_hooks(w)[0]
        assert not (w.workspace / "stop.txt").exists()


@pytest.mark.parametrize("how", ["command", "patch"])
async def test_no_command_and_no_patch_writes_hooks_of_a_project(world: MakeWorld, how: str) -> None:
    patch = "*** Begin Patch\n*** Add File: .codex/hooks.json\n+{}\n*** End Patch"
    call = patches(patch) if how == "patch" else script("mkdir -p .codex; echo '{}' > .codex/hooks.json")
    async with world(reply(call), reply(says("well"))) as w:
        thread = await start(w.client, approvalPolicy="never", sandbox="workspace-write")
        await say(w.client, thread)
        assert not (w.workspace / ".codex/hooks.json").exists()


async def test_hooks_of_the_request_that_opens_a_thread_run_once_the_user_agrees(world: MakeWorld) -> None:
    key = "/<session-flags>/config.toml:user_prompt_submit:0:0"
    async with world(*(reply(says("well")) for _ in range(2)), capabilities=EXPERIMENTAL) as w:
        group: Json = {"hooks": [{"type": "command", "command": f"echo ran >> {w.workspace}/ran"}]}
        [entry] = read_entries({"UserPromptSubmit": [group]})
        assert isinstance(entry, HookEntry)
        given = {"config": {"hooks.UserPromptSubmit": [group]}}
        confined: Json = {"approvalPolicy": "never", "sandbox": "workspace-write"}
        thread = await start(w.client, **confined, **given)
        await say(w.client, thread)
        [warning] = about_hooks(w)
        assert warning.startswith("1 hook does not run (you have not agreed to it yet): /<session-flags>/")
        assert not (w.workspace / "ran").exists()
        await agree(w, {"key": key, "currentHash": entry.digest})
        await say(w.client, thread)
        assert (w.workspace / "ran").read_text() == "ran\n"
        [run] = [each["run"] for each in notified(w, "hook/completed")]
        assert (run["source"], run["status"]) == ("sessionFlags", "completed")
        assert run["id"] == "user-prompt-submit:0:/<session-flags>/config.toml"
