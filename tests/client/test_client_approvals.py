"""Approvals and questions through the client library: handlers, defaults, and what goes wrong in a handler."""

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
)
from protocol.v2.items import CommandExecutionThreadItem, FileChangeThreadItem
from protocol.v2.thread_open import FunctionDynamicToolSpec
from tests.support.library import MakeLibraryWorld
from tests.support.scripted_model import calls, patches, reply, runs, says

ASKS = {"approval_policy": "untrusted"}
TOOL = FunctionDynamicToolSpec(
    name="lookup", description="Looks a ticket up.", input_schema={"type": "object"}
)
PATCH = "*** Begin Patch\n*** Add File: new.txt\n+hello\n*** End Patch\n"


async def test_without_a_handler_commands_and_tools_are_declined(library: MakeLibraryWorld) -> None:
    replies = (
        reply(runs("touch", "made")),
        reply(calls("lookup", {"id": "7"}, "c2")),
        reply(says("Never mind.")),
    )
    async with library(*replies, config=ASKS) as w:
        result = await (await w.server.start_thread(dynamic_tools=[TOOL])).run("go")
        [command] = [item for item in result.items if isinstance(item, CommandExecutionThreadItem)]
        assert command.status == "declined"
        assert not (w.workspace / "made").exists()
        assert "does not run the tool lookup" in str(w.model.requests[-1].body)


async def test_a_handler_sees_what_is_asked_and_its_answers_hold(library: MakeLibraryWorld) -> None:
    asked: list[ApprovalRequest] = []

    async def decide(request: ApprovalRequest) -> ApprovalReply | bool:
        await anyio.lowlevel.checkpoint()
        asked.append(request)
        match request:
            case CommandApprovalRequest():
                return request.accept_for_thread()
            case ClientToolRequest():
                return request.succeed("Ticket 7 is open.")
            case _:
                return False

    replies = (
        reply(runs("touch", "made")),
        reply(runs("touch", "made", call_id="c2")),
        reply(patches(PATCH, "c3")),
        reply(calls("lookup", {"id": "7"}, "c4")),
        reply(says("ok")),
    )
    async with library(*replies, config=ASKS, on_approval=decide) as w:
        thread = await w.server.start_thread(dynamic_tools=[TOOL])
        result = await thread.run("go")
        command, patch, tool = asked
        assert isinstance(command, CommandApprovalRequest)
        assert (command.thread_id, command.command) == (thread.id, "touch made")
        assert command.cwd == str(w.workspace)
        assert (w.workspace / "made").exists()
        assert isinstance(patch, PatchApprovalRequest)
        shown = [(change.path, change.diff) for change in patch.changes]
        assert shown == [(str(w.workspace / "new.txt"), "hello\n")]
        assert [item.status for item in result.items if isinstance(item, FileChangeThreadItem)] == [
            "declined"
        ]
        assert isinstance(tool, ClientToolRequest)
        assert tool.arguments == {"id": "7"}
        assert "Ticket 7 is open." in str(w.model.requests[-1].body)


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


async def test_a_failing_handler_declines_and_its_error_reaches_the_caller(library: MakeLibraryWorld) -> None:
    async def decide(_: ApprovalRequest) -> bool:
        raise ZeroDivisionError("a bug")

    replies = reply(runs("touch", "made")), reply(says("ok")), reply(says("later"))
    async with library(*replies, config=ASKS) as w:
        thread = await w.server.start_thread(on_approval=decide)
        with pytest.raises(HandlerFailed, match="a bug") as failed:
            await thread.run("go")
        assert isinstance(failed.value.__cause__, ZeroDivisionError)
        assert not (w.workspace / "made").exists()
