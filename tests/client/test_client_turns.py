"""Turns through the client library: run, stream, steer, interrupt, and how they end."""

import anyio
import pytest

from app_server.client import AppServerError, RequestRefused, ThreadHandle
from protocol.v2.item_events import AgentMessageDeltaNotification
from protocol.v2.items import CommandExecutionThreadItem
from protocol.v2.turn import TurnCompletedNotification, TurnStartedNotification, TurnStatus
from tests.support.library import MakeLibraryWorld
from tests.support.scripted_model import Hold, begins_to_say, failure, reply, runs, says, word


async def test_a_run_gives_the_final_message_the_items_and_the_usage_of_its_turn(
    library: MakeLibraryWorld,
) -> None:
    replies = (
        reply(runs("echo", "hi"), input=100, output=7),
        reply(says("It says hi."), input=200, output=9),
        reply(says("Bye."), input=20),
    )
    async with library(*replies) as w:
        thread = await w.server.start_thread(cwd=w.workspace)
        result = await thread.run("Run echo.")
        assert result.completed
        assert result.final_message == "It says hi."
        [command] = [item for item in result.items if isinstance(item, CommandExecutionThreadItem)]
        assert (command.exit_code, command.aggregated_output) == (0, "hi\n")
        assert [item.type for item in result.items] == ["userMessage", "commandExecution", "agentMessage"]
        assert result.usage is not None
        assert (result.usage.input_tokens, result.usage.output_tokens) == (300, 16)
        second = await thread.run("Bye.")
        assert second.usage is not None
        assert second.usage.input_tokens == 20


async def test_a_failed_turn_is_a_result_and_a_refused_request_an_error(library: MakeLibraryWorld) -> None:
    async with library(failure(400, {"error": {"message": "no such parameter"}})) as w:
        result = await (await w.server.start_thread()).run("hi")
        assert result.status is TurnStatus.FAILED
        assert result.error is not None
        assert "no such parameter" in result.error.message
        assert result.final_message is None
        with pytest.raises(RequestRefused, match="Method not found") as refused:
            await w.server.request_raw("no/such/method")
        assert refused.value.code == -32600
        assert isinstance(refused.value, AppServerError)


async def test_a_turn_ends_by_an_interrupt_by_cancelling_and_by_leaving_its_block(
    library: MakeLibraryWorld,
) -> None:
    hold = Hold()
    endless = reply(begins_to_say(), word("a"), Hold())
    async with library(endless, reply(begins_to_say(), hold), endless, reply(says("next"))) as w:
        thread = await w.server.start_thread()
        async with thread.events() as events:
            async for event in thread.stream("Until an interrupt."):
                if isinstance(event, AgentMessageDeltaNotification):
                    await thread.interrupt()
            await thread.interrupt()  # nothing runs
            async with anyio.create_task_group() as group:
                group.start_soon(thread.run, "Until its caller is cancelled.")
                await hold.reached.wait()
                group.cancel_scope.cancel()
            async with thread.stream("Until its block is left.") as stream:
                async for event in stream:
                    if isinstance(event, AgentMessageDeltaNotification):
                        break
            assert (await stream.result()).status is TurnStatus.INTERRUPTED
        ends = [event async for event in events if isinstance(event, TurnCompletedNotification)]
        assert [end.turn.status for end in ends] == [TurnStatus.INTERRUPTED] * 3
        assert (await thread.run("And now?")).final_message == "next"


async def test_a_stream_yields_the_turn_from_its_start_to_its_end(library: MakeLibraryWorld) -> None:
    async with library(reply(begins_to_say(), word("Hel"), word("lo"), says("Hello"))) as w:
        thread = await w.server.start_thread()
        stream = thread.stream("hi")
        events = [event async for event in stream]
        assert isinstance(events[0], TurnStartedNotification)
        assert isinstance(events[-1], TurnCompletedNotification)
        text = "".join(event.delta for event in events if isinstance(event, AgentMessageDeltaNotification))
        assert text == "Hello"
        assert (await stream.result()).final_message == "Hello"


async def test_two_threads_run_at_the_same_time_with_their_own_events(library: MakeLibraryWorld) -> None:
    async with library(*(reply(says("done")) for _ in range(6))) as w:
        results: list[tuple[str, str | None]] = []

        async def work(thread: ThreadHandle) -> None:
            async for event in thread.stream(thread.id):
                if isinstance(event, TurnStartedNotification | TurnCompletedNotification):
                    assert event.thread_id == thread.id
            results.append((thread.id, (await thread.run("again")).final_message))

        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(work, await w.server.start_thread())
        assert len(dict(results)) == 3
        assert {text for _, text in results} == {"done"}


async def test_a_turn_can_be_steered(library: MakeLibraryWorld) -> None:
    hold = Hold()
    async with library(reply(begins_to_say(), hold, says("ok")), reply(says("Blue it is."))) as w:
        thread = await w.server.start_thread()
        turn = await thread.start_turn("Paint it.")
        await hold.reached.wait()
        await turn.steer("Use blue.")
        hold.release()
        assert (await turn.result()).final_message == "Blue it is."
        assert "Use blue." in str(w.model.requests[-1].body)
        with pytest.raises(RequestRefused):
            await turn.steer("Too late.")
