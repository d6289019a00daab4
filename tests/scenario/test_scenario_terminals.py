"""Commands that go on between calls, as a client and the model see them, and what ends them."""

from protocol.base import Json
from tests.support.scripted_model import Hold, calls, failure, reply, says
from tests.support.thread_client import items, say, start
from tests.support.world import MakeWorld

UNIFIED = "[features]\nunified_exec = true\n"


def opens(cmd: str, call_id: str = "c1") -> Json:
    return calls(
        "exec_command", {"cmd": cmd, "shell": "/bin/sh", "login": False, "yield_time_ms": 250}, call_id
    )


def types(chars: str, call_id: str, wait: int = 60_000) -> Json:
    return calls("write_stdin", {"session_id": 0, "chars": chars, "yield_time_ms": wait}, call_id)


async def test_a_session_is_opened_typed_into_and_ended(world: MakeWorld) -> None:
    script = [
        reply(opens("read line; echo said:$line")),
        reply(types("hello\n", "c2")),
        reply(says("it has ended")),
    ]
    async with world(*script, tables=UNIFIED) as w:
        turn = await w.client.turn(await w.open())
        [end] = turn.of("exec_command_end")
        assert (end["call_id"], end["exit_code"]) == ("c1", 0)
        assert "said:hello" in end["aggregated_output"]
    assert "session ID 0" in w.model.requests[1].outputs()["c1"]
    assert "said:hello" in w.model.requests[2].outputs()["c2"]
    assert w.model.requests[0].tools[:2] == ["exec_command", "write_stdin"]


async def test_a_session_outlives_its_turn_and_ends_in_a_later_one(world: MakeWorld) -> None:
    script = [
        reply(opens("read line; echo said:$line")),
        reply(says("it goes on")),
        reply(types("hello\n", "c2")),
        reply(says("it has ended")),
    ]
    async with world(*script, tables=UNIFIED) as w:
        conversation = await w.open()
        first = await w.client.turn(conversation)
        second = await w.client.turn(conversation)
    assert (first.of("exec_command_end"), first.last_message) == ([], "it goes on")
    [end] = second.of("exec_command_end")
    assert (end["call_id"], end["exit_code"]) == ("c1", 0)


async def test_a_session_may_end_with_the_conversation(world: MakeWorld) -> None:
    async with world(reply(opens("sleep 1000")), reply(says("it goes on")), tables=UNIFIED) as w:
        turn = await w.client.turn(await w.open())
    assert turn.kinds().count("exec_command_begin") == 1
    assert turn.of("exec_command_end") == []


async def test_an_id_that_comes_again_while_its_command_goes_on(world: MakeWorld) -> None:
    """Each item has its own end, and the model's history the ids that the model chose."""
    script = [
        reply(opens("read line; echo said:$line")),
        reply(opens("echo second")),
        reply(types("hello\n", "c2")),
        reply(says("both have ended")),
    ]
    async with world(*script, tables=UNIFIED) as w:
        thread = await start(w.client)
        await say(w.client, thread)
        outputs = [item for item in items(w) if item["type"] == "commandExecution"]
        assert len({item["id"] for item in outputs}) == 2
        assert [item["aggregatedOutput"] for item in outputs] == ["second\r\n", "hello\r\nsaid:hello\r\n"]
    sent = [item["call_id"] for item in w.model.requests[-1].input if item["type"] == "function_call"]
    assert sent == ["c1", "c1", "c2"]


async def test_an_interrupt_ends_what_goes_on(world: MakeWorld) -> None:
    hold = Hold()
    script = [reply(opens("sleep 1000")), reply(hold), reply(types("", "c2", 250)), reply(says("gone"))]
    async with world(*script, tables=UNIFIED) as w:
        conversation = await w.open()
        await w.client.say(conversation)
        await hold.reached.wait()
        await w.client.interrupt(conversation)
        await w.client.turn(conversation)
    assert "there is no session 0" in w.model.requests[-1].outputs()["c2"]


async def test_what_the_model_may_not_run_is_asked_about(world: MakeWorld) -> None:
    script = [reply(opens("echo > made")), reply(says("as you like"))]
    async with world(*script, tables=UNIFIED, config={"approval_policy": "untrusted"}) as w:
        w.client.decide("execCommandApproval", "denied")
        turn = await w.client.turn(await w.open())
        assert [event["command"][-1] for event in turn.of("exec_approval_request")] == ["echo > made"]
        assert not (w.workspace / "made").exists()
    assert w.model.requests[1].outputs()["c1"] == "exec command rejected by user"


async def test_a_compaction_that_does_not_fit_leaves_the_oldest_out(world: MakeWorld) -> None:
    too_long = failure(400, {"error": {"code": "context_length_exceeded", "message": "too long"}})
    script = [
        reply(says("one")),
        reply(says("two")),
        too_long,
        reply(says("the summary")),
        reply(says("three")),
    ]
    async with world(*script) as w:
        conversation = await w.open()
        await w.client.turn(conversation, "first")
        await w.client.turn(conversation, "second")
        await w.client.operate(conversation, {"type": "compact"})
        await w.client.turn(conversation, "third")
    assert len(w.model.requests[3].input) == len(w.model.requests[2].input) - 1
    assert w.model.requests[4].texts() == ["first", "second", "the summary", "third"]
