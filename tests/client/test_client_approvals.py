"""Approvals and questions through the client library: handlers, defaults, and what goes wrong in a handler."""

from __future__ import annotations

import threading

import anyio
import pytest

from app_server.client import (
    ApprovalReply,
    ApprovalRequest,
    ClientToolRequest,
    CommandApprovalRequest,
    HandlerFailed,
    PatchApprovalRequest,
    ThreadHandle,
)
from protocol.v2.items import CommandExecutionThreadItem, FileChangeThreadItem
from protocol.v2.thread_open import FunctionDynamicToolSpec
from tests.support.library import LibraryWorld, MakeLibraryWorld
from tests.support.scripted_model import calls, patches, reply, runs, says

pytestmark = pytest.mark.anyio

ASKS = {"approval_policy": "untrusted"}
PATCH = "*** Begin Patch\n*** Add File: new.txt\n+hello\n*** End Patch\n"


async def commands(thread: ThreadHandle) -> list[str]:
    result = await thread.run("go")
    assert result.completed
    return [item.status for item in result.items if isinstance(item, CommandExecutionThreadItem)]


async def test_without_a_handler_commands_are_declined(library: MakeLibraryWorld) -> None:
    async with library(reply(runs("touch", "made")), reply(says("ok")), config=ASKS) as w:
        assert await commands(await w.server.start_thread()) == ["declined"]
        assert not (w.workspace / "made").exists()


async def test_a_coroutine_handler_sees_the_command_and_accepts_it(library: MakeLibraryWorld) -> None:
    asked: list[ApprovalRequest] = []

    async def decide(request: ApprovalRequest) -> bool:
        await anyio.lowlevel.checkpoint()
        asked.append(request)
        return True

    replies = reply(runs("touch", "made")), reply(says("ok"))
    async with library(*replies, config=ASKS, on_approval=decide) as w:
        thread = await w.server.start_thread()
        assert await commands(thread) == ["completed"]
        [request] = asked
        assert isinstance(request, CommandApprovalRequest)
        assert (request.thread_id, request.command, request.cwd) == (
            thread.id,
            "touch made",
            str(w.workspace),
        )
        assert (w.workspace / "made").exists()


async def test_a_plain_handler_may_wait_because_it_has_a_thread_of_its_own(library: MakeLibraryWorld) -> None:
    other_thread_is_done = threading.Event()

    def decide(_: ApprovalRequest) -> bool:
        return other_thread_is_done.wait(30)

    replies = reply(runs("touch", "made")), reply(says("other")), reply(says("ok"))
    async with library(*replies, config=ASKS) as w:
        asking = await w.server.start_thread(on_approval=decide)
        other = await w.server.start_thread()
        turn = await asking.start_turn("go")
        async with asking.events() as events:
            async for event in events:
                if getattr(getattr(event, "item", None), "type", "") == "commandExecution":
                    break
        assert (await other.run("hi")).final_message == "other"
        other_thread_is_done.set()
        assert (await turn.result()).final_message == "ok"
        assert (w.workspace / "made").exists()


async def test_a_handler_accepts_for_the_thread(library: MakeLibraryWorld) -> None:
    asked: list[ApprovalRequest] = []

    async def decide(request: ApprovalRequest) -> ApprovalReply:
        asked.append(request)
        assert isinstance(request, CommandApprovalRequest)
        return request.accept_for_thread()

    replies = reply(runs("touch", "a")), reply(runs("touch", "a", call_id="c2")), reply(says("ok"))
    async with library(*replies, config=ASKS, on_approval=decide) as w:
        assert await commands(await w.server.start_thread()) == ["completed", "completed"]
        assert len(asked) == 1


async def test_a_patch_is_shown_with_its_changes(library: MakeLibraryWorld) -> None:
    shown: list[tuple[str, str]] = []

    async def decide(request: ApprovalRequest) -> bool:
        assert isinstance(request, PatchApprovalRequest)
        shown.extend((change.path, change.diff) for change in request.changes)
        return False

    async with library(reply(patches(PATCH)), reply(says("ok")), config=ASKS, on_approval=decide) as w:
        result = await (await w.server.start_thread()).run("go")
        [patch] = [item for item in result.items if isinstance(item, FileChangeThreadItem)]
        assert patch.status == "declined"
        assert shown == [(str(w.workspace / "new.txt"), "hello\n")]


async def test_a_failing_handler_declines_and_its_error_reaches_the_caller(library: MakeLibraryWorld) -> None:
    async def decide(_: ApprovalRequest) -> bool:
        raise ZeroDivisionError("a bug")

    replies = reply(runs("touch", "made")), reply(says("ok")), reply(says("later"))
    async with library(*replies, config=ASKS, on_approval=decide) as w:
        thread = await w.server.start_thread()
        with pytest.raises(HandlerFailed, match="a bug") as failed:
            await thread.run("go")
        assert isinstance(failed.value.__cause__, ZeroDivisionError)
        assert not (w.workspace / "made").exists()


TOOL = FunctionDynamicToolSpec(
    name="lookup", description="Looks a ticket up.", input_schema={"type": "object"}
)


async def with_tool(w: LibraryWorld) -> str | None:
    thread = await w.server.start_thread(dynamic_tools=[TOOL])
    return (await thread.run("go")).final_message


async def test_the_client_runs_its_own_tools(library: MakeLibraryWorld) -> None:
    async def decide(request: ApprovalRequest) -> ApprovalReply:
        assert isinstance(request, ClientToolRequest)
        assert request.arguments == {"id": "7"}
        return request.succeed("Ticket 7 is open.")

    replies = reply(calls("lookup", {"id": "7"})), reply(says("It is open."))
    async with library(*replies, on_approval=decide) as w:
        assert await with_tool(w) == "It is open."
        assert "Ticket 7 is open." in str(w.model.requests[-1].body)


async def test_a_tool_that_nobody_runs_fails(library: MakeLibraryWorld) -> None:
    async with library(reply(calls("lookup", {"id": "7"})), reply(says("Never mind."))) as w:
        assert await with_tool(w) == "Never mind."
        assert "does not run the tool lookup" in str(w.model.requests[-1].body)
