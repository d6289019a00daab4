"""Hooks hold whatever a thread is used with: guards that fail and hooks that do not run, over each API and `exec`."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import pytest

from app_server_protocol.encoding import Json
from tests.cli.exec.test_exec_command import run
from tests.engine.hooks.hook_scripts import HomeHooks
from tests.support.editor import opened
from tests.support.scripted_model import calls, reply, says, script
from tests.support.thread_client import ended, items, notified, say, start, turn
from tests.support.waiting import until
from tests.support.world import EXPERIMENTAL, MakeWorld, World

pytestmark = pytest.mark.scenario

MAKE = script("echo made > made.txt")
FAILURES: dict[str, tuple[str, Json]] = {
    "exit": ("exit 1", {}),
    "signal": ("kill -9 $$", {}),
    "time": ("sleep 100", {"timeout": 1}),
    "json": ("echo '{no'", {}),
    "text before": ("""printf 'loading\\n{"decision": "block"}\\n'""", {}),
    "size": ("yes | head -c 2000000", {}),
    "no such program": ("exec /no/such/program", {}),
}


@pytest.fixture
def hooks(tmp_path: Path) -> HomeHooks:
    return HomeHooks(tmp_path)


def made(w: World) -> bool:
    return (w.workspace / "made.txt").exists()


def config(policy: str) -> Json:
    return {"approval_policy": policy, "sandbox_mode": "danger-full-access"}


async def play_old(w: World, *, agrees: bool) -> int:
    """Play one turn over the conversation API, and return the number of questions."""
    w.client.decide("execCommandApproval", "approved" if agrees else "denied")
    await w.client.turn(await w.open())
    return len(notified(w, "execCommandApproval"))


async def play_editor(w: World, *, agrees: bool) -> int:
    editor, session = await opened(w)
    editor.permit("allow_once" if agrees else "decline")
    await editor.ends(session)
    return len(notified(w, "session/request_permission"))


Play = Callable[..., Awaitable[int]]
OTHERS = {"conversations": play_old, "editors": play_editor}


@pytest.mark.parametrize("api", OTHERS)
@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("policy", ["on-request", "never"])
async def test_a_guard_of_calls_that_fails_has_not_agreed(
    world: MakeWorld, hooks: HomeHooks, api: str, failure: str, policy: str
) -> None:
    text, more = FAILURES[failure]
    hooks.add("PreToolUse", text, matcher="Bash", **more)
    replies = reply(MAKE), reply(says("well"))
    tables = hooks.tables()
    async with world(*replies, tables=tables, config=config(policy), acp=api == "editors") as w:
        questions = await OTHERS[api](w, agrees=False)
        assert not made(w)
    assert questions == (1 if policy == "on-request" else 0)


@pytest.mark.parametrize("api", OTHERS)
@pytest.mark.parametrize("setting", ["ask", "allow"])
async def test_the_user_or_the_settings_may_let_it_run(
    world: MakeWorld, hooks: HomeHooks, api: str, setting: str
) -> None:
    hooks.add("PreToolUse", "exit 1")
    tables = hooks.tables(f'[hooks]\non_failure = "{setting}"\n')
    replies = reply(MAKE), reply(says("well"))
    async with world(*replies, tables=tables, config=config("on-request"), acp=api == "editors") as w:
        questions = await OTHERS[api](w, agrees=True)
        assert made(w)
    assert questions == (1 if setting == "ask" else 0)


@pytest.mark.parametrize("on_failure", ["ask", "block", "allow"])
@pytest.mark.parametrize("failure", FAILURES)
async def test_a_guard_of_questions_that_fails_leaves_them_to_the_user(
    world: MakeWorld, hooks: HomeHooks, failure: str, on_failure: str
) -> None:
    text, more = FAILURES[failure]
    hooks.add("PermissionRequest", text, **more)
    tables = hooks.tables(f'[hooks]\non_failure = "{on_failure}"\n')
    async with world(reply(MAKE), reply(says("well")), tables=tables) as w:
        w.client.decide("item/commandExecution/requestApproval", "accept")
        thread = await start(w.client, approvalPolicy="untrusted", sandbox="danger-full-access")
        await say(w.client, thread)
        assert made(w) is (on_failure != "block")
        questions = len(notified(w, "item/commandExecution/requestApproval"))
    assert questions == (0 if on_failure == "block" else 1)


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize(("on_failure", "sent"), [("ask", 0), ("block", 0), ("allow", 1)])
async def test_a_guard_of_messages_that_fails_where_nobody_may_be_asked(
    world: MakeWorld, hooks: HomeHooks, failure: str, on_failure: str, sent: int
) -> None:
    text, more = FAILURES[failure]
    hooks.add("UserPromptSubmit", text, **more)
    tables = hooks.tables(f'[hooks]\non_failure = "{on_failure}"\n')
    async with world(reply(says("well")), tables=tables) as w:
        thread = await start(w.client, approvalPolicy="never")
        id = await turn(w.client, thread)
        assert (await ended(w.client, id))["status"] == "completed"
        told = [each["message"] for each in notified(w, "warning")]
        requests = len(w.model.requests)
    assert requests == sent
    assert any("The message was not sent" in each for each in told) is not sent


@pytest.mark.parametrize("api", OTHERS)
async def test_a_message_that_a_failed_guard_did_not_admit_is_not_sent_over_any_api(
    world: MakeWorld, hooks: HomeHooks, api: str
) -> None:
    hooks.add("UserPromptSubmit", "exit 1")
    tables = hooks.tables()
    async with world(tables=tables, config=config("on-request"), acp=api == "editors") as w:
        await OTHERS[api](w, agrees=True)
        assert w.model.requests == []
        assert "The message was not sent" in everything(w)


async def test_exec_sends_no_message_that_a_failed_guard_did_not_admit(
    tmp_path: Path, hooks: HomeHooks
) -> None:
    hooks.add("UserPromptSubmit", "exit 1")
    (tmp_path / "workspace").mkdir(exist_ok=True)
    done = await run(tmp_path, "go", replies=(), tables=hooks.tables())
    assert "The message was not sent" in done.stderr


def everything(w: World) -> str:
    """Return all that the client was sent."""
    return json.dumps(list(w.client.received()), ensure_ascii=False)


@pytest.mark.parametrize("api", [*OTHERS, "threads"])
async def test_hooks_that_do_not_run_are_said_over_each_api(
    world: MakeWorld, hooks: HomeHooks, api: str
) -> None:
    hooks.add("PreToolUse", "exit 2")
    hooks.tables()
    replies = [reply(MAKE), reply(says("well")), reply(says("again", "m2"))]
    async with world(*replies, config=config("never"), acp=api == "editors") as w:
        if api == "threads":
            thread = await start(w.client)
            await say(w.client, thread)
            await say(w.client, thread)
        else:
            await OTHERS[api](w, agrees=True)
        assert made(w)
        assert everything(w).count("1 hook does not run (you have not agreed to it yet)") == 1


@pytest.mark.parametrize(
    ("guard", "told"),
    [("echo 'not here' >&2; exit 2", "not here"), ("exit 1", "the hook ended with exit code 1")],
)
async def test_exec_says_why_a_command_did_not_run(
    tmp_path: Path, hooks: HomeHooks, guard: str, told: str
) -> None:
    hooks.add("PreToolUse", guard)
    (tmp_path / "workspace").mkdir(exist_ok=True)
    done = await run(tmp_path, "go", replies=(reply(MAKE), reply(says("ok"))), tables=hooks.tables())
    assert f"warning: the PreToolUse hook of {hooks.home}/hooks.json: {told}" in done.stderr


async def test_exec_says_that_hooks_do_not_run(tmp_path: Path, hooks: HomeHooks) -> None:
    hooks.add("PreToolUse", "exit 2")
    hooks.tables()
    (tmp_path / "workspace").mkdir(exist_ok=True)
    done = await run(tmp_path, "go", replies=(reply(says("ok")),))
    assert done.stderr.count("1 hook does not run (you have not agreed to it yet)") == 1
    assert done.stdout == "ok\n"


# --- words and commands beside the turn
async def test_words_that_join_a_running_turn_are_judged_too(world: MakeWorld, hooks: HomeHooks) -> None:
    hooks.add("UserPromptSubmit", f"if tail -n 1 {hooks.log} | grep -q password; then exit 2; fi")
    hooks.add("PreToolUse", f"touch {hooks.home}/begun; while [ ! -e {hooks.home}/go ]; do sleep 0.01; done")
    replies = reply(script("true")), reply(says("done"))
    async with world(*replies, tables=hooks.tables(), capabilities=EXPERIMENTAL) as w:
        thread = await start(w.client, approvalPolicy="never", sandbox="danger-full-access")
        id = await turn(w.client, thread, "go")
        await until(lambda: (hooks.home / "begun").exists())
        more = [{"type": "text", "text": "my password"}]
        await w.client.call("turn/steer", {"threadId": thread, "expectedTurnId": id, "input": more})
        (hooks.home / "go").touch()
        await ended(w.client, id)
    assert all("my password" not in request.texts() for request in w.model.requests)


async def test_a_command_of_the_user_is_no_call_of_the_model(world: MakeWorld, hooks: HomeHooks) -> None:
    hooks.add("PreToolUse", "exit 2")
    async with world(tables=hooks.tables(), capabilities=EXPERIMENTAL) as w:
        thread = await start(w.client)
        await w.client.call("thread/shellCommand", {"threadId": thread, "command": "echo made > made.txt"})
        await w.client.expect("turn/completed")
        assert made(w)


# --- several at the same time
async def test_two_threads_with_one_hook_do_not_wait_for_each_other(
    world: MakeWorld, hooks: HomeHooks
) -> None:
    """Each run is that of its own thread, and one that waits holds nobody up."""
    wait = f"while [ ! -e {hooks.home}/go ]; do sleep 0.01; done"
    hooks.add("UserPromptSubmit", f"if tail -n 1 {hooks.log} | grep -q first; then {wait}; fi")
    replies = reply(says("one")), reply(says("two", "m2"))
    async with world(*replies, tables=hooks.tables(), capabilities=EXPERIMENTAL) as w:
        first, second = await start(w.client), await start(w.client)
        held = await turn(w.client, first, "first")
        await until(lambda: bool(hooks.read("UserPromptSubmit")))
        await say(w.client, second, "second")
        assert [request.texts() for request in w.model.requests] == [["second"]]
        (hooks.home / "go").touch()
        await ended(w.client, held)
        runs = {each["threadId"]: each["run"]["status"] for each in notified(w, "hook/completed")}
        begun = notified(w, "hook/started")
    assert runs == {first: "completed", second: "completed"}
    assert sorted(each["threadId"] for each in begun) == sorted([first, second])
    assert {each["session_id"] for each in hooks.read("UserPromptSubmit")} == {first, second}


async def test_calls_of_one_reply_are_judged_each_for_itself(world: MakeWorld, hooks: HomeHooks) -> None:
    hooks.command("PreToolUse", "if grep -q forbidden; then echo no >&2; exit 2; fi")
    several = [script(f"echo {name} > {name}.txt", name) for name in ("one", "forbidden", "two")]
    async with world(reply(*several), reply(says("well")), tables=hooks.tables()) as w:
        await say(w.client, await start(w.client, approvalPolicy="never", sandbox="danger-full-access"))
        assert sorted(path.name for path in w.workspace.glob("*.txt")) == ["one.txt", "two.txt"]
        shown = {item["id"]: item["status"] for item in items(w, kind="commandExecution")}
    assert shown == {"one": "completed", "forbidden": "declined", "two": "completed"}
    ids = [each["run"]["id"] for each in notified(w, "hook/started")]
    assert len(set(ids)) == 3


@pytest.mark.parametrize("tool", ["exec_command", "update_plan"])
async def test_an_interrupt_ends_a_hook_of_any_call_and_the_next_turn_runs(
    world: MakeWorld, hooks: HomeHooks, tool: str
) -> None:
    arguments = {"cmd": "true"} if tool == "exec_command" else {"plan": [{"step": "x", "status": "pending"}]}
    hooks.command("PreToolUse", f"touch {hooks.home}/begun; [ -e {hooks.home}/go ] || sleep 600")
    replies = reply(calls(tool, arguments)), reply(says("done"))
    tables = hooks.tables("[features]\nunified_exec = true\n")
    async with world(*replies, tables=tables, capabilities=EXPERIMENTAL) as w:
        thread = await start(w.client, approvalPolicy="never", sandbox="danger-full-access")
        id = await turn(w.client, thread)
        await until(lambda: (hooks.home / "begun").exists())
        await w.client.call("turn/interrupt", {"threadId": thread, "turnId": id})
        with anyio.fail_after(20):
            assert (await ended(w.client, id))["status"] == "interrupted"
        (hooks.home / "go").touch()
        await say(w.client, thread)
    begun, completed = (len(notified(w, f"hook/{each}")) for each in ("started", "completed"))
    assert begun == completed


async def test_a_hook_that_fails_at_the_begin_of_a_review_is_told_in_its_turn(
    world: MakeWorld, hooks: HomeHooks
) -> None:
    """The conversation API tells of a review's turn once the review is entered."""
    hooks.add("SessionStart", "exit 1")
    async with world(reply(says("fine")), tables=hooks.tables()) as w, w.another() as old:
        thread = await start(w.client)
        await old.call("resumeConversation", {"conversationId": thread})
        await old.listen(thread)
        target: Json = {"type": "custom", "instructions": "look"}
        await w.client.call("review/start", {"threadId": thread, "target": target})
        await old.expect("task_complete")
        kinds = [m["params"]["msg"]["type"] for m in old.received() if "codex/event" in m.get("method", "")]
    assert kinds.index("entered_review_mode") < kinds.index("task_started") < kinds.index("background_event")
