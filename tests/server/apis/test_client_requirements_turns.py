"""Requirements of existing clients of the thread API, one test for each: turns, their ends, and questions."""

from datetime import UTC, datetime

import pytest

from app_server.engine.storage.writer import RolloutWriter
from app_server_protocol.encoding import Json
from tests.support.client import Refused
from tests.support.scripted_model import Hold, begins_to_say, failure, reply, says, script, word
from tests.support.thread_client import ended, items, notified, start, turn, words
from tests.support.world import MakeWorld

pytestmark = pytest.mark.scenario

ASKS = {"approval_policy": "untrusted"}


async def test_ids_of_turns_are_unique_over_threads(world: MakeWorld) -> None:
    """A client remembers finished turns by their ids alone."""
    async with world(*(reply(says("a")) for _ in range(4))) as w:
        ids = []
        for thread in (await start(w.client), await start(w.client)):
            for _ in range(2):
                ids.append(await turn(w.client, thread))
                await ended(w.client, ids[-1])
        assert len(set(ids)) == 4


async def test_the_final_text_comes_with_the_completed_item(world: MakeWorld) -> None:
    """No client needs deltas for the result; one that opted out of them misses nothing."""
    opted = {"optOutNotificationMethods": ["item/agentMessage/delta"]}
    async with world(reply(begins_to_say(), word("a"), word(" b"), says("a b")), capabilities=opted) as w:
        await ended(w.client, await turn(w.client, await start(w.client)))
        assert notified(w, "item/agentMessage/delta") == []
        assert [item["text"] for item in items(w, kind="agentMessage")] == ["a b"]


async def test_usage_is_told_in_each_turn(world: MakeWorld) -> None:
    """Clients report the cost of a turn from it."""
    async with world(reply(says("a"), input=100, output=7), reply(says("b"), input=200, output=9)) as w:
        thread = await start(w.client)
        ids = []
        for _ in range(2):
            ids.append(await turn(w.client, thread))
            await ended(w.client, ids[-1])
        told = notified(w, "thread/tokenUsage/updated")
        assert [each["turnId"] for each in told] == ids
        assert [each["tokenUsage"]["last"]["outputTokens"] for each in told] == [7, 9]
        assert told[-1]["tokenUsage"]["total"]["totalTokens"] == 316


async def test_an_interrupt_is_answered_at_once_and_ends_everything(world: MakeWorld) -> None:
    """Clients leave out the thread or the turn, and kill a server that takes seconds."""
    replies = reply(script("echo > a")), reply(script("echo > b")), reply(script("echo > c"))
    async with world(*replies, config=ASKS) as w:
        for number, leave_out in enumerate(({}, {"turnId"}, {"threadId"})):
            thread = await start(w.client)
            id = await turn(w.client, thread)
            question = await w.client.expect("item/commandExecution/requestApproval")
            given = {"threadId": thread, "turnId": id}
            named = {key: value for key, value in given.items() if key not in leave_out}
            assert await w.client.call("turn/interrupt", named) == {}, number
            done = await ended(w.client, id)
            assert done["status"] == "interrupted"
            resolved = [each["requestId"] for each in notified(w, "serverRequest/resolved")]
            assert question["id"] in resolved
            await w.client.answer(question, {"decision": "accept"})
        assert len(resolved) == 3
        assert list(w.workspace.iterdir()) == [], "a yes that comes too late"


async def test_errors_of_retries_say_reconnecting_and_final_ones_do_not(world: MakeWorld) -> None:
    """A client recognises by that word the errors that it may ignore."""
    broken = failure(500, {"error": {"message": "down"}})
    limits = {"stream_max_retries": 1, "request_max_retries": 0}
    async with world(broken, broken, provider=limits) as w:
        await ended(w.client, await turn(w.client, await start(w.client)))
        errors = notified(w, "error")
        assert [each["willRetry"] for each in errors][-1] is False
        assert len(errors) >= 1
        for each in errors:
            assert ("Reconnecting" in each["error"]["message"]) is each["willRetry"]


@pytest.mark.parametrize(
    ("status", "info"),
    [
        (400, "badRequest"),
        (401, "unauthorized"),
        (404, {"httpConnectionFailed": {"httpStatusCode": 404}}),
        (429, {"responseTooManyFailedAttempts": {"httpStatusCode": 429}}),
        (503, {"httpConnectionFailed": {"httpStatusCode": 503}}),
    ],
)
async def test_the_class_of_an_error_is_a_word_or_an_object_with_one_key(
    world: MakeWorld, status: int, info: Json
) -> None:
    """Clients match both forms, as the schema has them."""
    async with world(failure(status, {"error": {"message": "no"}})) as w:
        done = await ended(w.client, await turn(w.client, await start(w.client)))
        assert done["error"]["codexErrorInfo"] == info


async def test_texts_that_clients_match(world: MakeWorld) -> None:
    """The texts match literally, as far as they are quoted here; one client reads the id between backticks."""
    hold = Hold()
    absent = "01a1b2c3-0000-7000-8000-000000000000"
    async with world(reply(begins_to_say(), word("a"), hold, says("a")), initialize=False) as w:
        with pytest.raises(Refused, match=r"(?i)not initialized"):
            await w.client.call("thread/list", {})
        await w.client.initialize()
        thread = await start(w.client)
        with pytest.raises(Refused, match=f"no rollout found for thread id {absent}"):
            await w.client.call("thread/resume", {"threadId": absent})
        with pytest.raises(Refused, match=f"thread not found: {absent}"):
            await w.client.call("turn/start", {"threadId": absent, "input": words("a")})
        with pytest.raises(Refused, match="thread not loaded"):
            await w.client.call("thread/read", {"threadId": absent})
        for method in ("thread/read", "thread/resume", "turn/start"):
            with pytest.raises(Refused, match="invalid thread id"):
                await w.client.call(method, {"threadId": "../../etc", "input": []})
        with pytest.raises(Refused, match="no active turn to interrupt"):
            await w.client.call("turn/interrupt", {"threadId": thread, "turnId": absent})
        with pytest.raises(Refused, match="no active turn to interrupt"):
            await w.client.call("turn/interrupt", {"threadId": thread})
        assert await w.client.call("turn/interrupt", {"threadId": thread, "turnId": ""}) == {}
        id = await turn(w.client, thread)
        await w.client.expect("item/agentMessage/delta")
        other = f"expected active turn id `{absent}` but found `{id}`"
        steer = {"threadId": thread, "expectedTurnId": absent, "input": words("a")}
        with pytest.raises(Refused, match=other):
            await w.client.call("turn/steer", steer)
        with pytest.raises(Refused, match=other):
            await w.client.call("turn/interrupt", {"threadId": thread, "turnId": absent})
        hold.release()
        await ended(w.client, id)


async def test_a_thread_that_another_server_has_open_is_named_so(world: MakeWorld) -> None:
    """Clients match the text, show it, and offer to read the thread instead."""
    async with world(reply(says("a"))) as w:
        thread = await start(w.client)
        await ended(w.client, await turn(w.client, thread))
    async with world() as w:
        [stored] = w.home.glob("sessions/**/rollout-*.jsonl")
        other_server = RolloutWriter.resume(stored, lambda: datetime.now(UTC))
        try:
            for method in ("thread/resume", "thread/archive"):
                with pytest.raises(Refused, match=f"{thread} already has an active writer"):
                    await w.client.call(method, {"threadId": thread})
            read = await w.client.call("thread/read", {"threadId": thread, "includeTurns": True})
            assert len(read["thread"]["turns"]) == 1
        finally:
            other_server.close()
        resumed = await w.client.call("thread/resume", {"threadId": thread})
        assert resumed["thread"]["id"] == thread
