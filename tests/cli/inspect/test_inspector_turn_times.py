"""The time of a turn by cause: waiting for an answer to a question, for a tool, for the model, or for nothing known."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.cli.inspect.overview import Overview
from app_server.cli.inspect.turn_times import spent
from app_server_protocol.encoding import Json
from tests.cli.inspect.recorded_turn import (
    CLIENT,
    SERVER,
    THREAD,
    TURN,
    TURN_WITH_APPROVAL,
    analysed,
    asked,
    item,
    told,
)

SPANS = st.lists(
    st.tuples(st.sampled_from(["question", "tool", "model"]), st.floats(-5, 25), st.floats(-5, 25)),
    max_size=8,
)


def shown(messages: object) -> dict[str, Json]:
    """Return the times of the newest turn in the messages, one message every ten milliseconds."""
    overview = Overview()
    for entry in analysed(messages):  # type: ignore[arg-type]
        overview.add(entry)
    turn = overview.turn("", "")
    assert turn is not None
    found: dict[str, Json] = turn.shown(overview.at)
    return found


def test_each_moment_belongs_to_one_thing() -> None:
    spans = [("tool", 1, 6), ("question", 2, 4), ("model", 5, 8)]
    assert spent(spans, 10) == [
        ("wait", 0, 1),
        ("tool", 1, 2),
        ("question", 2, 4),
        ("tool", 4, 6),
        ("model", 6, 8),
        ("wait", 8, 10),
    ]


@given(SPANS)
def test_pieces_are_the_whole_turn(spans: list[tuple[str, float, float]]) -> None:
    pieces = spent(spans, 20)
    assert [start for _, start, _ in pieces] == [0, *(end for _, _, end in pieces[:-1])]
    assert pieces[-1][2] == 20
    assert all(one[0] != other[0] for one, other in pairwise(pieces))


def test_a_turn_with_a_question_says_where_its_time_went() -> None:
    turn = shown(TURN_WITH_APPROVAL)
    assert (turn["thread"], turn["turn"], turn["ended"], turn["length"]) == (THREAD, TURN, True, 120.0)
    assert turn["totals"] == {"model": 40.0, "tool": 40.0, "question": 10.0, "wait": 30.0}
    assert [(bar["kind"], bar["what"], bar["start"], bar["end"], bar["deltas"]) for bar in turn["bars"]] == [
        ("commandExecution", "tool", 10.0, 60.0, 0),
        ("agentMessage", "model", 70.0, 110.0, 3),
    ]
    [question] = turn["questions"]
    assert (question["n"], question["item"], question["start"], question["end"]) == (8, "command", 30.0, 40.0)


def test_what_is_open_goes_on_until_now() -> None:
    turn = shown(TURN_WITH_APPROVAL[:9])
    assert (turn["ended"], turn["bars"][0]["open"], turn["questions"][0]["open"]) == (False, True, True)
    assert turn["questions"][0]["end"] == turn["length"]


def test_a_question_that_another_client_answers_ends_then() -> None:
    by_another = [
        each for each in TURN_WITH_APPROVAL if each != (CLIENT, {"id": 0, "result": {"decision": "accept"}})
    ]
    [question] = shown(by_another)["questions"]
    assert (question["start"], question["end"], question["open"]) == (30.0, 40.0, False)


def test_pieces_of_a_text_between_tools_are_no_one_long_text() -> None:
    """The Agent Client Protocol does not mark the begin and the end of a text."""

    def update(**fields: Json) -> tuple[object, Json]:
        return SERVER, {"method": "session/update", "params": {"sessionId": "s", "update": fields}}

    def word() -> tuple[object, Json]:
        return update(sessionUpdate="agent_message_chunk", content={"type": "text", "text": "x"})

    turn = shown(
        [
            asked(0, "initialize", protocolVersion=1),
            asked(1, "session/prompt", sessionId="s", prompt=[]),
            word(),
            word(),
            update(sessionUpdate="tool_call", toolCallId="t", kind="execute", title="x"),
            update(sessionUpdate="tool_call_update", toolCallId="t", status="completed"),
            word(),
            word(),
            (SERVER, {"id": 1, "result": {"stopReason": "end_turn"}}),
        ]
    )
    assert turn["totals"] == {"model": 20.0, "tool": 10.0, "question": 0.0, "wait": 40.0}


def test_a_turn_of_very_many_items_is_told_in_part() -> None:
    many = [item("started", "commandExecution", f"call {n}") for n in range(1000)]
    turn = shown([told("turn/started", turn={"id": TURN}), *many])
    assert (len(turn["bars"]), turn["more"], turn["items"]) == (400, 600, 1000)


@pytest.mark.parametrize(
    ("named", "found"), [(("", ""), "b"), (("t", ""), "a"), (("t", "b"), None), (("", "a"), "a")]
)
def test_a_turn_is_found_by_its_thread_and_name(named: tuple[str, str], found: str | None) -> None:
    overview = Overview()
    for thread, turn in (("t", "a"), ("u", "b")):
        for entry in analysed([told("turn/started", threadId=thread, turn={"id": turn})]):
            overview.add(entry)
    turn_found = overview.turn(*named)
    assert (None if turn_found is None else turn_found.turn) == found


def test_a_hook_is_a_bar_of_its_turn() -> None:
    run: Json = {"id": "pre-tool-use:0:/h:c1", "eventName": "preToolUse"}
    times = shown(
        (
            told("turn/started", turn={"id": TURN}),
            told("hook/started", turnId=TURN, run=run),
            told("hook/completed", turnId=TURN, run=run),
        )
    )
    [bar] = times["bars"]
    assert (bar["id"], bar["kind"], bar["what"]) == (run["id"], "hook preToolUse", "tool")
    assert bar["end"] > bar["start"]
