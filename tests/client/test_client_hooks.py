"""Hooks of a program: functions of the client library that the server asks about events."""

from __future__ import annotations

import anyio
import pytest

from app_server.client import HookCall, HookReply, Hooks
from tests.docs.markdown_blocks import ROOT, blocks
from tests.support.library import MakeLibraryWorld
from tests.support.scripted_model import patches, reply, says, script

pytestmark = pytest.mark.scenario

MAKE = reply(script("echo made > made.txt"))
DONE = reply(says("Done."))
PATCH = "*** Begin Patch\n*** Add File: new.txt\n+hello\n*** End Patch"


async def test_a_function_denies_and_the_model_gets_the_reason(library: MakeLibraryWorld) -> None:
    hooks, seen = Hooks(), list[HookCall]()

    @hooks.on("PreToolUse", "Bash")
    async def guard(call: HookCall) -> HookReply | None:
        seen.append(call)
        return call.deny("not today")

    async with library(MAKE, DONE, hooks=hooks) as w:
        thread = await w.server.start_thread(cwd=w.workspace, sandbox="danger-full-access")
        result = await thread.run("go")
        assert result.final_message == "Done."
        assert not (w.workspace / "made.txt").exists()
        assert "not today" in w.model.requests[1].outputs()["c1"]
    [call] = seen
    assert (call.event, call.tool, call.command) == ("PreToolUse", "Bash", "echo made > made.txt")
    assert (call.thread_id, call.turn_id) == (thread.id, result.turn_id)


async def test_functions_of_several_events_and_a_plain_one(library: MakeLibraryWorld) -> None:
    hooks = Hooks()

    @hooks.on("UserPromptSubmit")
    def inform(call: HookCall) -> HookReply:
        return call.context(f"the user said {call.prompt!r}")

    @hooks.on("PreToolUse", "Edit")
    def keep(call: HookCall) -> HookReply | None:
        return call.deny("no new files") if "Add File" in call.command else None

    async with library(reply(patches(PATCH)), DONE, hooks=hooks) as w:
        thread = await w.server.start_thread(cwd=w.workspace, sandbox="danger-full-access")
        await thread.run("go")
        assert "the user said 'go'" in str(w.model.requests[0].input)
        assert not (w.workspace / "new.txt").exists()


async def test_a_call_is_changed(library: MakeLibraryWorld) -> None:
    hooks = Hooks()

    @hooks.on("PreToolUse")
    def change(call: HookCall) -> HookReply:
        return call.change({"command": "echo other > other.txt"})

    async with library(MAKE, DONE, hooks=hooks) as w:
        thread = await w.server.start_thread(cwd=w.workspace, sandbox="danger-full-access")
        await thread.run("go")
        assert (w.workspace / "other.txt").exists()
        assert not (w.workspace / "made.txt").exists()


async def test_a_function_that_fails_has_not_agreed(library: MakeLibraryWorld) -> None:
    hooks = Hooks()

    @hooks.on("PreToolUse")
    def broken(call: HookCall) -> HookReply:
        raise ValueError("oh")

    async with library(MAKE, DONE, hooks=hooks) as w:
        thread = await w.server.start_thread(
            cwd=w.workspace, sandbox="danger-full-access", approval_policy="never"
        )
        await thread.run("go")
        assert not (w.workspace / "made.txt").exists()
        assert "the hook failed: ValueError('oh')" in w.model.requests[1].outputs()["c1"]


async def test_a_function_that_takes_too_long_is_cancelled(library: MakeLibraryWorld) -> None:
    hooks, cancelled = Hooks(timeout=1), anyio.Event()

    @hooks.on("PreToolUse")
    async def slow(call: HookCall) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.set()

    async with library(MAKE, DONE, hooks=hooks) as w:
        thread = await w.server.start_thread(
            cwd=w.workspace, sandbox="danger-full-access", approval_policy="never"
        )
        await thread.run("go")
        assert not (w.workspace / "made.txt").exists()
        with anyio.fail_after(30):
            await cancelled.wait()


def test_the_announcement_names_tools_where_all_functions_do() -> None:
    hooks = Hooks(timeout=5)
    assert hooks.announcement() is None
    hooks.on("PreToolUse", "Bash")(lambda call: None)
    hooks.on("PostToolUse", "Write")(lambda call: None)
    events = ["PostToolUse", "PreToolUse"]
    matcher = "Bash|Edit|Write|apply_patch"
    assert hooks.announcement() == {"events": events, "timeoutSec": 5, "matcher": matcher}
    hooks.on("PreToolUse")(lambda call: None)
    assert hooks.announcement() == {"events": events, "timeoutSec": 5}


@pytest.mark.parametrize(
    ("event", "reply_of", "answer"),
    [
        (
            "PreToolUse",
            lambda call: call.ask("sure?"),
            {"permissionDecision": "ask", "permissionDecisionReason": "sure?"},
        ),
        ("PreToolUse", lambda call: call.allow(), {"permissionDecision": "allow"}),
        ("PermissionRequest", lambda call: call.allow(), {"decision": {"behavior": "allow"}}),
    ],
)
def test_what_a_reply_says(event: str, reply_of: object, answer: dict[str, object]) -> None:
    call = HookCall(event=event, thread_id="t", turn_id=None, input={})
    assert callable(reply_of)
    assert reply_of(call).answer == {"hookSpecificOutput": {"hookEventName": event, **answer}}
    assert call.end_turn("enough").answer == {"continue": False, "stopReason": "enough"}
    assert (call.tool, call.command, call.prompt) == ("", "", "")


async def test_the_example_of_the_page(library: MakeLibraryWorld) -> None:
    """Run the block of docs/embedding.md."""
    [block] = [
        each
        for each in blocks(ROOT / "docs/embedding.md")
        if each.language == "python" and "Hooks(" in each.text
    ]
    names: dict[str, object] = {}
    exec(compile(block.text, str(block), "exec"), names)
    hooks = names["hooks"]
    assert isinstance(hooks, Hooks)
    async with library(reply(script("git push")), DONE, hooks=hooks) as w:
        thread = await w.server.start_thread(cwd=w.workspace, sandbox="danger-full-access")
        await thread.run("go")
        assert "ask the user to push" in w.model.requests[1].outputs()["c1"]
