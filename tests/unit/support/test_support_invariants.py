"""The invariants that every scenario is held against can be broken: one record for each way."""

import json
from pathlib import Path

import pytest

from protocol.base import Json
from tests.support import invariants
from tests.support.client import Logged
from tests.support.published import departures
from tests.support.scripted_model import ModelRequest

C = "01890000-0000-7000-8000-000000000000"
START: Json = {"type": "task_started", "model_context_window": None}
END: Json = {"type": "task_complete", "last_agent_message": None}
ABORT: Json = {"type": "turn_aborted", "reason": "interrupted"}
ERROR: Json = {"type": "error", "message": "x"}


def begin(call: str) -> Json:
    return {"type": "exec_command_begin", "call_id": call}


def end(call: str) -> Json:
    return {"type": "exec_command_end", "call_id": call}


def of_turn(*events: Json, id: str = "0") -> list[tuple[str, Json]]:
    return [(id, event) for event in events]


def event(msg: Json, id: str = "0") -> Json:
    method = f"codex/event/{msg['type']}"
    return {"method": method, "params": {"id": id, "msg": msg, "conversationId": C}}


@pytest.mark.parametrize(
    ("events", "word"),
    [
        (of_turn(START), "never ends"),
        (of_turn(START, END, END), "ends twice"),
        (of_turn(START, END, ABORT), "ends twice"),
        (of_turn(START, END, ERROR), "after the end"),
        (of_turn(ERROR, START, END), "before task_started"),
        (of_turn({**END, "last_agent_message": "x"}), "never started"),
        (of_turn(START) + of_turn(START, id="1"), "while"),
    ],
)
def test_turns(events: list[tuple[str, Json]], word: str) -> None:
    assert any(word in problem for problem in invariants.turns(events))
    assert invariants.turns(of_turn(START, ERROR, END) + of_turn(START, ABORT, id="1")) == []


def item(kind: str, id: str) -> Json:
    return {"type": f"item_{kind}", "turn_id": "0", "item": {"AgentMessage": {"id": id, "content": []}}}


@pytest.mark.parametrize(
    "events",
    [
        [item("completed", "a")],
        [item("started", "a"), item("started", "a")],
        [{"type": "agent_message_content_delta", "item_id": "a"}],
        [
            item("started", "a"),
            item("completed", "a"),
            {"type": "agent_message_content_delta", "item_id": "a"},
        ],
    ],
)
def test_items(events: list[Json]) -> None:
    assert invariants.items(events)
    assert invariants.items([item("started", "a"), item("completed", "a")]) == []


@pytest.mark.parametrize(
    "events",
    [
        of_turn(begin("c")),
        of_turn(end("c")),
        of_turn(begin("c"), end("c"), end("c")),
        of_turn(begin("c"), END, end("c")),
        of_turn({"type": "exec_command_output_delta", "call_id": "c"}),
    ],
)
def test_spans(events: list[tuple[str, Json]]) -> None:
    assert invariants.spans(events)
    assert invariants.spans(of_turn(begin("c"), end("c"), begin("d"), ABORT)) == []


def test_a_terminal_may_outlive_its_turn() -> None:
    outlives = of_turn(START, begin("c"), END)
    assert invariants.spans(outlives, terminals={"c": True}) == []
    assert invariants.spans(outlives, terminals={"another": True})
    assert invariants.spans(outlives, terminals={"c": False}), "it has exited, and nobody was told"
    assert invariants.spans([*outlives, *of_turn(end("c"), id="1")], terminals={"c": False}) == []


def test_terminals_are_identified_by_what_the_model_was_sent() -> None:
    def asked(tool: str, id: str, told: str, **arguments: Json) -> list[Json]:
        called = {"type": "function_call", "name": tool, "call_id": id, "arguments": json.dumps(arguments)}
        return [called, {"type": "function_call_output", "call_id": id, "output": told}]

    begun = asked("exec_command", "c1", "Process running with session ID 0\nOutput:\n", cmd="cat")
    others = [
        *asked("exec_command", "c2", "Process exited with code 0\nOutput:\n", cmd="ls"),
        *asked("shell", "c3", "Process running with session ID 1"),
    ]
    looked = asked("write_stdin", "c4", "Process exited with code 1\nOutput:\n", session_id=0)

    def request(items: list[Json]) -> ModelRequest:
        return ModelRequest("/responses", {}, {"input": items})

    assert invariants.terminals([request([*begun, *others])]) == {"c1": True}
    assert invariants.terminals([request(begun), request([*begun, *looked])]) == {"c1": False}


def call(id: str) -> Json:
    return {"type": "function_call", "call_id": id}


def output(id: str) -> Json:
    return {"type": "function_call_output", "call_id": id}


@pytest.mark.parametrize(
    "history",
    [[call("a")], [output("a")], [output("a"), call("a")], [call("a"), output("a"), output("a")]],
)
def test_orphans(history: list[Json]) -> None:
    assert invariants.orphans(history)
    assert invariants.orphans([call("a"), call("b"), output("b"), output("a")]) == []


def test_every_request_is_answered_once() -> None:
    asked = Logged(True, {"id": 1, "method": "userInfo"})
    answered = Logged(False, {"id": 1, "result": {}})
    assert invariants.unanswered([asked])
    assert invariants.unanswered([asked, answered, answered])
    assert invariants.unanswered([answered])
    assert invariants.unanswered([asked, answered]) == []


def test_nothing_comes_before_the_answer_that_announces_it() -> None:
    listen = {"id": 1, "method": "addConversationListener", "params": {"conversationId": C}}
    say = {"id": 2, "method": "sendUserMessage", "params": {"conversationId": C}}
    opening = [Logged(True, listen), Logged(False, {"id": 1, "result": {"subscriptionId": C}})]
    told, answered = Logged(False, event(START)), Logged(False, {"id": 2, "result": {}})
    assert invariants.too_early([told])
    assert invariants.too_early([*opening, Logged(True, say), told, answered])
    assert invariants.too_early([*opening, Logged(True, say), answered, told]) == []


def test_a_question_has_its_event() -> None:
    question = {"id": 0, "method": "execCommandApproval", "params": {"callId": "c"}}
    told = event({"type": "exec_approval_request", "call_id": "c"})
    assert invariants.unasked([question])
    assert invariants.unasked([told, question, question])
    assert invariants.unasked([told, question]) == []


@pytest.mark.parametrize(
    "message",
    [
        event({"type": "no_such_event"}),
        event({"type": "error"}),
        event({"type": "error", "message": "x", "more": 1}),
        {"method": "no/such", "params": {}},
        {"id": 0, "method": "noSuchQuestion", "params": {}},
        {"id": 9, "result": {}},
        {"id": 1, "result": {"allegedUserEmail": 5}},
        {"id": 1, "error": {"code": 1, "message": "x", "more": 1}},
        {"jsonrpc": "2.0", "id": 1, "result": {}},
    ],
    ids=str,
)
def test_messages_are_as_published(message: Json) -> None:
    asked = Logged(True, {"id": 1, "method": "userInfo"})
    assert departures(message, [asked, Logged(False, message)])
    good = event({"type": "error", "message": "x"})
    assert departures(good, [Logged(False, good)]) == []


def test_a_stored_conversation_is_complete_and_has_what_was_sent(tmp_path: Path) -> None:
    path = tmp_path / f"rollout-2026-01-01T00-00-00-{C}.jsonl"
    said = {"type": "agent_message", "message": "hi"}
    lines = [("session_meta", {"id": C}), ("event_msg", said)]
    path.write_text("".join(json.dumps({"timestamp": "", "type": t, "payload": p}) + "\n" for t, p in lines))
    stored, broken = invariants.rollout(path)
    assert broken == []
    assert invariants.unstored([event(said)], {str(path): stored}) == []
    assert invariants.unstored([event({**said, "message": "ho"})], {str(path): stored})
    path.write_text("{torn\n" + json.dumps({"timestamp": "", "type": "response_item", "payload": call("a")}))
    assert len(invariants.rollout(path)[1]) == 3
