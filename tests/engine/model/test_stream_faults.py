"""Thirty stream faults at each of five points of a turn. In each case the turn ends once, no call runs twice, and the
conversation still answers. The invariants of every conversation are checked when a world ends.
"""

from collections.abc import Callable, Sequence

import pytest

from app_server_protocol.encoding import Json
from tests.support.client import Turn
from tests.support.scripted_model import CREATED, Reply, begins_to_say, reply, says, script, word
from tests.support.stream_faults import FAULTS, TOO_LONG, Fault
from tests.support.world import MakeWorld, World

pytestmark = [pytest.mark.process, pytest.mark.faults]

PROVIDER = {"stream_max_retries": 1, "stream_idle_timeout_ms": 1000}
"""The limit is long for a loaded machine: a whole answer that starts late is no idle stream."""


def marks(call_id: str) -> Json:
    """Return a command that leaves a trace of each of its runs."""
    return script(f"echo run >> {call_id}", call_id)


def opens(call_id: str) -> Json:
    """Return the begin of a message that some of the faults never end."""
    item = {"type": "message", "role": "assistant", "id": f"message-{call_id}", "content": []}
    return {"type": "response.output_item.added", "item": item}


Point = Callable[[Fault, str], Sequence[Reply]]


def at_the_beginning(fault: Fault, call_id: str) -> Sequence[Reply]:
    return [fault.behind(())]


def within_a_message(fault: Fault, call_id: str) -> Sequence[Reply]:
    return [fault.behind((CREATED, opens(call_id), word("par")))]


def after_a_message(fault: Fault, call_id: str) -> Sequence[Reply]:
    return [fault.behind((CREATED, says("almost there")))]


def after_a_call(fault: Fault, call_id: str) -> Sequence[Reply]:
    return [fault.behind((CREATED, marks(call_id)))]


def after_an_output(fault: Fault, call_id: str) -> Sequence[Reply]:
    return [reply(marks(call_id)), fault.behind((CREATED, opens(call_id), word("it was")))]


POINTS: tuple[Point, ...] = (
    at_the_beginning,
    within_a_message,
    after_a_message,
    after_a_call,
    after_an_output,
)


@pytest.mark.parametrize("half", [0, 1])
@pytest.mark.parametrize("point", POINTS)
async def test_the_conversation_still_answers(world: MakeWorld, point: Point, half: int) -> None:
    async with world(provider=PROVIDER) as w:
        conversation = await w.open()
        for n, fault in enumerate(FAULTS[half::2]):
            call_id = f"call-{n}"
            seen = len(w.model.requests)
            turn = await _play(w, conversation, [*point(fault, call_id), reply(says("recovered"))])
            assert ends(turn) == ["task_complete"], fault.name
            assert len(turn.of("error")) <= 1, fault.name
            _ran_at_most_once(w, call_id, fault)
            if point in (after_a_call, after_an_output):
                for request in w.model.requests[seen + 1 :]:
                    assert call_id in request.outputs(), (
                        f"{fault.name}: the retried request lacks what was done"
                    )
            # If the context was too long, the history is summarised first.
            summary = [reply(says("summary"))] if fault.name == TOO_LONG else []
            after = await _play(w, conversation, [*summary, reply(says(f"answer {n}"))])
            assert after.last_message == f"answer {n}", fault.name


async def _play(w: World, conversation: str, replies: Sequence[Reply]) -> Turn:
    w.model.replies[:] = replies
    turn = await w.client.turn(conversation)
    w.model.replies.clear()
    return turn


def ends(turn: Turn) -> list[str]:
    return [kind for kind in turn.kinds() if kind in ("task_complete", "turn_aborted")]


def _ran_at_most_once(w: World, call_id: str, fault: Fault) -> None:
    trace = w.workspace / call_id
    if trace.exists():
        assert trace.read_text() == "run\n", fault.name
        trace.unlink()


async def test_a_broken_stream_is_reported_and_requested_again(world: MakeWorld) -> None:
    cut = FAULTS[0]
    async with world(provider=PROVIDER) as w:
        conversation = await w.open()
        replies = [cut.behind((CREATED, begins_to_say(), word("lost"))), reply(says("whole"))]
        turn = await _play(w, conversation, replies)
    assert [event["message"] for event in turn.of("stream_error")] == ["Reconnecting... 1/1"]
    assert turn.last_message == "whole"
    assert w.model.requests[0].input == w.model.requests[1].input


async def test_a_stream_that_stays_broken_ends_the_turn_with_an_error(world: MakeWorld) -> None:
    cut = FAULTS[0]
    async with world(provider=PROVIDER) as w:
        conversation = await w.open()
        turn = await _play(w, conversation, [cut.behind(()), cut.behind(())])
        assert turn.last_message is None
        (error,) = turn.of("error")
        assert error["message"].startswith("stream disconnected before completion")
        assert (await _play(w, conversation, [reply(says("again"))])).last_message == "again"


async def test_what_a_broken_stream_called_is_done_once_and_the_next_request_knows(world: MakeWorld) -> None:
    cut = FAULTS[0]
    async with world(provider=PROVIDER) as w:
        conversation = await w.open()
        call = script("echo run >> trace; echo said", "c1")
        turn = await _play(
            w, conversation, [cut.behind((CREATED, call, begins_to_say(), word("and"))), reply(says("ok"))]
        )
        assert (w.workspace / "trace").read_text() == "run\n"
    assert turn.last_message == "ok"
    assert "said" in w.model.requests[1].outputs()["c1"]
    assert w.model.requests[1].texts("assistant") == [], "what followed the call is said anew"
