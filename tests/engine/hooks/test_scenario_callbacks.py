"""Callbacks of a client: it is asked about events by `hook/run`, without files and consent."""

from __future__ import annotations

from pathlib import Path

import pytest

from app_server_protocol.encoding import Json
from tests.engine.hooks.hook_scripts import HomeHooks
from tests.support.scripted_model import reply, says, script
from tests.support.thread_client import ended, items, join, notified, say, start, turn
from tests.support.world import EXPERIMENTAL, MakeWorld, World

pytestmark = pytest.mark.scenario

FULL: Json = {"approvalPolicy": "on-request", "sandbox": "danger-full-access"}
MAKE = script("echo made > made.txt")
DENY: Json = {"decision": "block", "reason": "not here"}
ALLOW: Json = {
    "hookSpecificOutput": {"hookEventName": "PermissionRequest", "decision": {"behavior": "allow"}}
}


def announced(*events: str, **more: Json) -> Json:
    return {"experimentalApi": True, "hooks": {"events": [*events], **more}}


async def asked(w: World) -> Json:
    return await w.client.expect("hook/run")


async def test_a_client_denies_a_call(world: MakeWorld) -> None:
    replies = (reply(MAKE), reply(says("well")))
    async with world(*replies, capabilities=announced("PreToolUse", matcher="Bash")) as w:
        thread = await start(w.client, **FULL)
        id = await turn(w.client, thread)
        request = await asked(w)
        params = request["params"]
        assert (params["threadId"], params["turnId"], params["event"]) == (thread, id, "PreToolUse")
        assert params["input"]["tool_input"] == {"command": "echo made > made.txt"}
        assert params["input"]["hook_event_name"] == "PreToolUse"
        await w.client.answer(request, DENY)
        assert (await ended(w.client, id))["status"] == "completed"
        assert not (w.workspace / "made.txt").exists()
        [item] = items(w, kind="commandExecution")
        assert item["status"] == "declined"
        assert "not here" in w.model.requests[1].outputs()["c1"]
        [run] = [each["run"] for each in notified(w, "hook/completed")]
        assert (run["status"], run["source"], run["handlerType"]) == ("blocked", "sessionFlags", "command")


async def test_a_client_without_objection_lets_the_call_run(world: MakeWorld) -> None:
    async with world(reply(MAKE), reply(says("well")), capabilities=announced("PreToolUse")) as w:
        id = await turn(w.client, await start(w.client, **FULL))
        await w.client.answer(await asked(w), {})
        await ended(w.client, id)
        assert (w.workspace / "made.txt").exists()


@pytest.mark.parametrize(
    "announcement",
    [announced("PreToolUse", matcher="Edit"), announced("Stop", "PreToolUse", matcher="mcp__.*")],
)
async def test_what_the_matcher_does_not_name_is_not_asked(world: MakeWorld, announcement: Json) -> None:
    async with world(reply(MAKE), reply(says("well")), capabilities=announcement) as w:
        id = await turn(w.client, await start(w.client, **FULL))
        if "Stop" in announcement["hooks"]["events"]:
            stop = await asked(w)
            assert stop["params"]["event"] == "Stop"
            await w.client.answer(stop, {})
        await ended(w.client, id)
        assert (w.workspace / "made.txt").exists()


async def test_a_client_adds_context_and_sees_the_words(world: MakeWorld) -> None:
    async with world(reply(says("well")), capabilities=announced("UserPromptSubmit")) as w:
        id = await turn(w.client, await start(w.client), "go")
        request = await asked(w)
        assert request["params"]["input"]["prompt"] == "go"
        own = {"hookEventName": "UserPromptSubmit", "additionalContext": "it is late"}
        await w.client.answer(request, {"hookSpecificOutput": own})
        await ended(w.client, id)
        assert "it is late" in str(w.model.requests[0].input)


@pytest.mark.parametrize("answer", [["no object"], {"decision": "perhaps"}, {"continue": "no"}, None])
async def test_an_answer_that_is_none_does_not_agree(world: MakeWorld, answer: Json) -> None:
    never = {**FULL, "approvalPolicy": "never"}
    async with world(reply(MAKE), reply(says("well")), capabilities=announced("PreToolUse")) as w:
        id = await turn(w.client, await start(w.client, **never))
        await w.client.answer(await asked(w), answer)
        await ended(w.client, id)
        assert not (w.workspace / "made.txt").exists()
        [run] = [each["run"] for each in notified(w, "hook/completed")]
        assert run["status"] == "failed"


async def test_no_answer_within_the_limit_does_not_agree(world: MakeWorld) -> None:
    never = {**FULL, "approvalPolicy": "never"}
    async with world(
        reply(MAKE), reply(says("well")), capabilities=announced("PreToolUse", timeoutSec=1)
    ) as w:
        id = await turn(w.client, await start(w.client, **never))
        await asked(w)
        await ended(w.client, id)
        assert not (w.workspace / "made.txt").exists()
        [run] = [each["run"] for each in notified(w, "hook/completed")]
        assert "was not answered within 1 s" in run["entries"][0]["text"]


async def test_an_interrupt_ends_the_question(world: MakeWorld) -> None:
    async with world(reply(MAKE), capabilities=announced("PreToolUse")) as w:
        thread = await start(w.client, **FULL)
        id = await turn(w.client, thread)
        await asked(w)
        await w.client.call("turn/interrupt", {"threadId": thread, "turnId": id})
        assert (await ended(w.client, id))["status"] == "interrupted"
        assert not (w.workspace / "made.txt").exists()


@pytest.mark.parametrize(("rights", "runs"), [(True, True), (False, False)])
async def test_a_client_approves_what_its_user_could(world: MakeWorld, *, rights: bool, runs: bool) -> None:
    tables = f"[app_server]\nclient_rights = {str(rights).lower()}\n"
    settings: Json = {"approval_policy": "untrusted", "sandbox_mode": "danger-full-access"}
    async with world(
        reply(MAKE),
        reply(says("well")),
        config=settings,
        tables=tables,
        capabilities=announced("PermissionRequest"),
    ) as w:
        id = await turn(w.client, await start(w.client))
        await w.client.answer(await asked(w), ALLOW)
        if not runs:
            question = await w.client.expect("item/commandExecution/requestApproval")
            await w.client.answer(question, {"decision": "decline"})
        await ended(w.client, id)
        assert (w.workspace / "made.txt").exists() is runs


@pytest.mark.parametrize(
    ("value", "part"),
    [
        ({"events": ["preToolUse"]}, "'preToolUse' is no event"),
        ({"events": "PreToolUse"}, "`events` must be a list"),
        ({"events": ["Stop"], "matcher": "("}, "`matcher`"),
        ({"events": ["Stop"], "timeoutSec": 0}, "`timeoutSec`"),
        (True, "`events` must be a list"),
    ],
)
async def test_what_cannot_be_read_is_told(world: MakeWorld, value: Json, part: str) -> None:
    async with world(reply(says("well")), capabilities={"experimentalApi": True, "hooks": value}) as w:
        await say(w.client, await start(w.client))
        [warning] = notified(w, "configWarning")
        assert part in warning["summary"]


async def test_a_client_without_the_experimental_api_is_not_asked(world: MakeWorld) -> None:
    async with world(reply(says("well")), capabilities={"hooks": {"events": ["Stop"]}}) as w:
        await say(w.client, await start(w.client))
        assert notified(w, "configWarning") == []


async def test_callbacks_work_beside_the_hooks_of_files(world: MakeWorld, tmp_path: Path) -> None:
    hooks = HomeHooks(tmp_path)
    hooks.add("PreToolUse", "echo 'the file' >&2; exit 2")
    async with world(
        reply(MAKE), reply(says("well")), tables=hooks.tables(), capabilities=announced("PreToolUse")
    ) as w:
        id = await turn(w.client, await start(w.client, **FULL))
        await w.client.answer(await asked(w), DENY)
        await ended(w.client, id)
        assert len(hooks.read("PreToolUse")) == 1
        assert "the file; not here" in w.model.requests[1].outputs()["c1"]


async def test_a_callback_ends_with_its_connection(world: MakeWorld) -> None:
    """Another client goes on with the thread, and nobody is asked."""
    replies = (reply(MAKE), reply(says("well")), reply(MAKE), reply(says("well")))
    async with world(*replies, capabilities=EXPERIMENTAL) as w:
        async with w.another(capabilities=announced("PreToolUse")) as other:
            thread = await start(other, **FULL)
            id = await turn(other, thread)
            await other.answer(await other.expect("hook/run"), DENY)
            await ended(other, id)
            await join(w.client, thread)
        assert not (w.workspace / "made.txt").exists()
        await say(w.client, thread)
        assert (w.workspace / "made.txt").exists()


async def test_a_client_that_leaves_with_an_open_question_has_not_agreed(world: MakeWorld) -> None:
    replies = (reply(MAKE), reply(says("well")))
    async with world(*replies, capabilities=EXPERIMENTAL) as w:
        async with w.another(capabilities=announced("PreToolUse")) as other:
            thread = await start(other, **{**FULL, "approvalPolicy": "never"})
            await join(w.client, thread)
            id = await turn(other, thread)
            await other.expect("hook/run")
        await ended(w.client, id)
        assert not (w.workspace / "made.txt").exists()
        assert "the client left" in w.model.requests[1].outputs()["c1"]


async def test_a_client_is_asked_in_threads_that_it_joins(world: MakeWorld) -> None:
    replies = (reply(says("one")), reply(MAKE), reply(says("well")))
    async with world(*replies, capabilities=EXPERIMENTAL) as w:
        thread = await start(w.client, **FULL)
        await say(w.client, thread)
        async with w.another(capabilities=announced("PreToolUse")) as other:
            await join(other, thread)
            id = await turn(w.client, thread)
            await other.answer(await other.expect("hook/run"), DENY)
            await ended(w.client, id)
        assert not (w.workspace / "made.txt").exists()
