"""The turn loop and each of its requests: ask the model, run its calls, ask again, whatever their outcome."""

import anyio
import pytest

from app_server.engine.context.environment_context import user_text
from app_server.engine.http.interface import Fault, HttpFailure
from app_server.engine.support.engine_errors import ContextWindowExceeded, ModelError, StreamDisconnected
from app_server.engine.turn.loop import ContextStillFull
from app_server.engine.turn.turn_items import TurnInput
from app_server_protocol.encoding import Json
from app_server_protocol.engine.errors import ErrorClass
from app_server_protocol.engine.events import AttemptFailed, ItemCompleted
from app_server_protocol.engine.items import AgentMessage
from app_server_protocol.responses import FunctionCall, FunctionCallOutput, MessageItem
from tests.engine.model.scripted import (
    COMPLETED,
    CREATED,
    answer,
    event,
    item_done,
    message_done,
    refused,
    text_delta,
)
from tests.engine.turn.conftest import Bench, OnlyAPrompt

CUT = HttpFailure(Fault.CUT, "gone")


def note(call_id: str) -> bytes:
    return item_done(type="function_call", call_id=call_id, name="note", arguments="{}")


def failed(code: str, message: str = "") -> bytes:
    return event("response.failed", response={"id": "r1", "error": {"code": code, "message": message}})


def kinds(items: list[Json]) -> list[str]:
    return [item.get("role", item["type"]) for item in items]


async def test_items_are_collected_in_the_models_order(bench: Bench) -> None:
    bench.answers(
        answer(CREATED, message_done("first"), note("a"), message_done("then"), note("b"), COMPLETED)
    )
    reply = await bench.model_call().request(bench.prompt)
    items = reply.items(0.0)
    expected = [MessageItem, FunctionCall, FunctionCallOutput, MessageItem, FunctionCall, FunctionCallOutput]
    assert [type(item) for item in items] == expected
    assert bench.tool.ran == ["a", "b"]
    assert reply.completed
    assert reply.calls


async def test_a_broken_stream_is_asked_for_again_with_the_same_request(bench: Bench) -> None:
    bench.answers(answer(CREATED, text_delta("par"), CUT), answer(message_done("whole"), COMPLETED))
    reply = await bench.model_call(retries=1).request(bench.prompt)
    assert len(reply.items(0.0)) == 1
    assert bench.inputs(0) == bench.inputs(1)
    events = [event.event for event in await bench.events()]
    (failed_attempt,) = [event for event in events if isinstance(event, AttemptFailed)]
    assert (failed_attempt.attempt, failed_attempt.attempts) == (1, 1)
    assert failed_attempt.error.error_class is ErrorClass.RESPONSE_STREAM_DISCONNECTED
    (cut,) = [event for event in events if isinstance(event, ItemCompleted) and event.cut]
    assert isinstance(cut.item, AgentMessage)
    assert cut.item.text == "par", "what was begun has an end before the next attempt"
    assert events.index(cut) < events.index(failed_attempt)


async def test_what_a_broken_reply_called_is_in_the_next_request_and_not_done_again(bench: Bench) -> None:
    bench.answers(
        answer(message_done("let me see"), note("a"), text_delta("and"), CUT),
        answer(message_done("so"), COMPLETED),
    )
    reply = await bench.model_call(retries=1).request(bench.prompt)
    assert bench.tool.ran == ["a"]
    assert kinds(bench.inputs(1)) == ["assistant", "function_call", "function_call_output"]
    assert [item.type for item in reply.items(0.0)] == ["message"]
    assert [item.type for item in bench.history.items] == ["message", "function_call", "function_call_output"]


async def test_a_call_that_still_runs_when_the_stream_breaks_is_brought_to_its_end(bench: Bench) -> None:
    release = anyio.Event()
    bench.tool.hold = release.wait
    bench.answers(answer(note("a"), CUT), answer(message_done("ok"), COMPLETED))
    async with anyio.create_task_group() as group:
        group.start_soon(bench.model_call(retries=1).request, bench.prompt)
        await anyio.wait_all_tasks_blocked()
        assert len(bench.http.requests) == 1, "the retry waits for the call"
        release.set()
    assert bench.inputs(1)[-1]["output"] == "noted a"


async def test_what_was_done_is_kept_when_the_attempts_are_used_up(bench: Bench) -> None:
    bench.answers(answer(note("a"), CUT))
    with pytest.raises(StreamDisconnected):
        await bench.model_call().request(bench.prompt)
    assert [item.type for item in bench.history.items] == ["function_call", "function_call_output"]


@pytest.mark.parametrize("code", ["insufficient_quota", "context_length_exceeded"])
async def test_what_no_retry_can_help_is_not_retried(bench: Bench, code: str) -> None:
    bench.answers(answer(failed(code)))
    with pytest.raises(ModelError):
        await bench.model_call(retries=5).request(bench.prompt)
    assert "AttemptFailed" not in await bench.kinds()


async def test_a_full_window_is_counted_as_full(bench: Bench) -> None:
    bench.answers(answer(failed("context_length_exceeded")))
    with pytest.raises(ContextWindowExceeded):
        await bench.model_call(window=1000).request(bench.prompt)
    assert bench.tokens.info is not None
    assert bench.tokens.info.total_token_usage.total_tokens == 1000
    assert (await bench.kinds())[-1] == "TokenUsageUpdated"


async def test_a_refused_request_uses_no_stream_retry(bench: Bench) -> None:
    bench.answers(refused(400, {"error": {"message": "no"}}))
    with pytest.raises(ModelError):
        await bench.model_call(retries=3).request(bench.prompt)
    assert len(bench.http.requests) == 1


async def test_an_interrupted_reply_keeps_its_calls_and_says_what_was_aborted(bench: Bench) -> None:
    forever = anyio.Event()

    async def second_call_hangs() -> None:
        if len(bench.tool.ran) > 1:
            await forever.wait()

    bench.tool.hold = second_call_hangs
    bench.answers(answer(message_done("on it"), note("a"), note("b"), text_delta("and"), forever))
    model_call = bench.model_call()
    async with anyio.create_task_group() as group:
        group.start_soon(model_call.request, bench.prompt)
        await anyio.wait_all_tasks_blocked()
        group.cancel_scope.cancel()
    model_call.abandon()
    outputs = [item.output.content for item in bench.history.items if isinstance(item, FunctionCallOutput)]
    assert outputs[0] == "noted a"
    assert "aborted by user" in outputs[1]
    assert bench.history.for_prompt() == list(bench.history.items), "every call has its output"
    assert bench.http.open == 0


async def test_abandoning_twice_or_with_nothing_under_way_is_nothing(bench: Bench) -> None:
    bench.answers(answer(message_done("done"), COMPLETED))
    model_call = bench.model_call()
    model_call.abandon()
    model_call.hand_over(await model_call.request(bench.prompt))
    model_call.abandon()
    assert len(bench.history) == 0, "what was handed over is the turn's to record"


async def test_calls_without_an_id_get_one_and_without_tools_none_runs(bench: Bench) -> None:
    bench.answers(answer(note(""), note(""), COMPLETED), answer(note("x"), COMPLETED))
    reply = await bench.model_call().request(bench.prompt)
    ids = [item.call_id for item in reply.items(0.0) if isinstance(item, FunctionCall)]
    assert len(set(ids)) == 2
    assert all(ids)
    assert not (await bench.model_call(tools=False).request(bench.prompt)).calls


async def test_what_the_history_does_not_need_is_left_out(bench: Bench) -> None:
    search = item_done(
        type="web_search_call", id="ws", status="completed", action={"type": "search", "query": "q"}
    )
    stray = item_done(type="function_call_output", call_id="x", output="?")
    bench.answers(answer(search, stray, item_done(type="dream"), message_done("ok"), COMPLETED))
    reply = await bench.model_call().request(bench.prompt)
    assert [item.type for item in reply.items(0.0)] == ["message"]
    assert "ItemCompleted WebSearch" in await bench.kinds()


WORDS = TurnInput(user_text("go"))


def costing(tokens: int) -> bytes:
    usage = {"input_tokens": tokens, "output_tokens": 0, "total_tokens": tokens}
    return event("response.completed", response={"id": "r1", "usage": usage})


async def test_a_context_over_its_limit_is_compacted_once(bench: Bench) -> None:
    bench.answers(answer(message_done("long"), costing(900)), answer(message_done("short"), costing(10)))
    last = await bench.loop(bench.model_call(), compact_limit=500).run(WORDS)
    assert last == "short"
    assert bench.compacted == 1


async def test_a_context_that_stays_over_its_limit_ends_the_turn(bench: Bench) -> None:
    bench.answers(answer(message_done("long"), costing(900)), answer(message_done("still"), costing(800)))
    with pytest.raises(ContextStillFull, match=r"limit 500, current 800"):
        await bench.loop(bench.model_call(), compact_limit=500).run(WORDS)
    assert bench.compacted == 1


async def test_a_limit_that_is_reached_again_later_is_compacted_again(bench: Bench) -> None:
    bench.answers(
        answer(note("a"), costing(600)),
        answer(note("b"), costing(10)),
        answer(note("c"), costing(700)),
        answer(message_done("ok"), costing(20)),
    )
    await bench.loop(bench.model_call(), compact_limit=500).run(WORDS)
    assert bench.compacted == 2


async def test_a_turn_that_is_interrupted_behind_a_reply_keeps_its_calls(bench: Bench) -> None:
    """The diff of its patches is made in a thread, before the reply is recorded."""

    class Hangs(OnlyAPrompt):
        async def diff(self) -> str | None:
            await anyio.sleep_forever()
            return None

    bench.answers(answer(note("a"), COMPLETED))
    loop = bench.loop(bench.model_call())
    loop.steps = Hangs()
    async with anyio.create_task_group() as group:
        group.start_soon(loop.run, WORDS)
        await anyio.wait_all_tasks_blocked()
        group.cancel_scope.cancel()
    loop.abandon()
    kinds = [item.type for item in bench.history.items]
    assert kinds == ["message", "function_call", "function_call_output"]


async def test_an_interrupted_turn_leaves_its_words_and_whole_pairs(bench: Bench) -> None:
    forever = anyio.Event()
    bench.tool.hold = forever.wait
    bench.answers(answer(note("a"), COMPLETED))
    loop = bench.loop(bench.model_call())
    async with anyio.create_task_group() as group:
        group.start_soon(loop.run, WORDS)
        await anyio.wait_all_tasks_blocked()
        bench.pending_input.append(TurnInput(user_text("wait")))
        group.cancel_scope.cancel()
    loop.abandon()
    assert [item.type for item in bench.history.items] == [
        "message",
        "function_call",
        "function_call_output",
        "message",
    ]
    assert bench.history.for_prompt() == list(bench.history.items)
