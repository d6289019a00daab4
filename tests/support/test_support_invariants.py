"""The invariants of every scenario, and the order rules of the thread API, report violations."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from app_server_protocol.encoding import Json
from tests.support import invariants
from tests.support.client import Logged
from tests.support.published import departures
from tests.support.scripted_model import ModelRequest
from tests.support.thread_invariants import stored_items, stored_otherwise, violated_thread_invariants

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


def test_no_terminal_outlives_its_turn_where_that_is_interrupted() -> None:
    late = of_turn(START, begin("c"), ABORT, {"type": "exec_command_output_delta", "call_id": "c"})
    assert invariants.spans(late, terminals={"c": True})
    assert invariants.spans(late[:-1], terminals={"c": True}) == []


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
    assert departures(Logged(False, message), [asked])
    good = event({"type": "error", "message": "x"})
    assert departures(Logged(False, good), []) == []


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


T, U = "thread", "turn"
ACTIVE: Json = {"type": "active", "activeFlags": []}
WAITING: Json = {"type": "active", "activeFlags": ["waitingOnApproval"]}
DIFF = "diff --git a/x b/x"


def said(method: str, **params: Json) -> Logged:
    return Logged(False, {"method": method, "params": {"threadId": T, **params}})


def status(value: Json) -> Logged:
    return said("thread/status/changed", status=value)


def thread_item(method: str, kind: str, id: str, **fields: Json) -> Logged:
    return said(f"item/{method}", turnId=U, item={"type": kind, "id": id, **fields})


def turn(method: str, state: str = "completed", error: Json = None) -> Logged:
    return said(f"turn/{method}", turn={"id": U, "status": state, "error": error})


def asked(id: int, method: str, **params: Json) -> Logged:
    return Logged(True, {"id": id, "method": method, "params": params})


def answered(id: int, **result: Json) -> Logged:
    return Logged(False, {"id": id, "result": result})


def good() -> dict[str, Logged]:
    """Return a turn with a message, a patch that needs an approval, and a diff, with a name for each line."""
    question = {"threadId": T, "turnId": U, "itemId": "patch"}
    return {
        "start": asked(1, "thread/start"),
        "thread": answered(1, thread={"id": T}),
        "announced": Logged(False, {"method": "thread/started", "params": {"thread": {"id": T}}}),
        "begin": asked(2, "turn/start", threadId=T, input=[{"type": "text", "text": "x"}]),
        "turn": answered(2, turn={"id": U}),
        "active": status(ACTIVE),
        "started": turn("started", "inProgress"),
        "words": thread_item("started", "userMessage", "words"),
        "words end": thread_item("completed", "userMessage", "words"),
        "message": thread_item("started", "agentMessage", "message"),
        "delta": said("item/agentMessage/delta", turnId=U, itemId="message", delta="x"),
        "message end": thread_item("completed", "agentMessage", "message", text="x"),
        "waiting": status(WAITING),
        "patch": thread_item("started", "fileChange", "patch"),
        "question": Logged(False, {"id": 0, "method": "item/fileChange/requestApproval", "params": question}),
        "answer": Logged(True, {"id": 0, "result": {"decision": "accept"}}),
        "resolved": said("serverRequest/resolved", requestId=0),
        "going on": status(ACTIVE),
        "patch end": thread_item("completed", "fileChange", "patch"),
        "diff": said("turn/diff/updated", turnId=U, diff=DIFF),
        "usage": said("thread/tokenUsage/updated", turnId=U),
        "ended": turn("completed"),
        "idle": status({"type": "idle"}),
    }


Record = dict[str, Logged]


def without(*names: str) -> Callable[[Record], list[Logged]]:
    return lambda record: [line for name, line in record.items() if name not in names]


def moved(name: str, before: str) -> Callable[[Record], list[Logged]]:
    def change(record: Record) -> list[Logged]:
        names = [each for each in record if each != name]
        names.insert(names.index(before), name)
        return [record[each] for each in names]

    return change


def put(line: Logged, before: str) -> Callable[[Record], list[Logged]]:
    def change(record: Record) -> list[Logged]:
        lines = list(record.values())
        lines.insert(list(record).index(before), line)
        return lines

    return change


def replaced(name: str, line: Logged) -> Callable[[Record], list[Logged]]:
    return lambda record: list({**record, name: line}.values())


FAILED: Json = {"message": "no"}
OTHER: Json = {"message": "other"}


def final(error: Json) -> Logged:
    return said("error", turnId=U, willRetry=False, error=error)


def heard_by_both(record: Record) -> list[Logged]:
    """Return a log in which a listener of the conversation API receives two messages in the other order."""
    second = [
        thread_item("started", "agentMessage", "m2"),
        thread_item("completed", "agentMessage", "m2", text="y"),
    ]
    events = [
        Logged(
            False,
            {
                "method": "codex/event/agent_message",
                "params": {"conversationId": T, "msg": {"type": "agent_message", "message": text}},
            },
        )
        for text in ("y", "x")
    ]
    lines = list(record.values())
    at = list(record).index("waiting")
    return [*lines[:at], *second, *events, *lines[at:]]


def test_a_good_record_breaks_no_rule() -> None:
    assert violated_thread_invariants(list(good().values())) == []
    # A command on a terminal that outlives its turn is no violation, either.
    command = thread_item("started", "commandExecution", "c", processId="7")
    record = [
        *put(command, "waiting")(good()),
        thread_item("completed", "commandExecution", "c", processId="7"),
    ]
    assert violated_thread_invariants(record) == []


def test_a_client_that_left_need_not_have_received_the_end() -> None:
    record = without("ended", "idle")(good())
    assert violated_thread_invariants(record, left_early=True) == []
    assert violated_thread_invariants(record) != []


def test_words_may_join_a_turn_that_begins_for_a_goal() -> None:
    record = good()
    words = [record.pop("words"), record.pop("words end")]
    goal = said("thread/goal/updated", goal={"objective": "all"}, turnId=None)
    lines = list(record.values())
    begun, later = list(record).index("active"), list(record).index("waiting")
    late = [*lines[begun:later], *words, *lines[later:]]
    assert violated_thread_invariants([*lines[:begun], *late]) != []
    assert violated_thread_invariants([*lines[:begun], goal, *late]) == []


def test_a_command_of_the_user_may_precede_the_words_that_begin_a_turn() -> None:
    for source, allowed in (("userShell", True), ("agent", False)):
        command = [
            thread_item(what, "commandExecution", "c", source=source) for what in ("started", "completed")
        ]
        lines = list(good().values())
        begun = list(good()).index("words")
        assert (violated_thread_invariants([*lines[:begun], *command, *lines[begun:]]) == []) is allowed


@pytest.mark.parametrize(
    ("rule", "change"),
    [
        ("rule_01", moved("turn", "words")),
        ("rule_01", moved("thread", "begin")),
        ("rule_02", moved("announced", "words")),
        ("rule_02", moved("announced", "thread")),
        ("rule_02", put(good()["announced"], "idle")),
        ("rule_03", moved("active", "words")),
        ("rule_03", moved("message", "words end")),
        ("rule_03", without("words", "words end", "message", "message end", "delta")),
        ("rule_03_the_words_that_begin_a_turn", without("words", "words end")),
        ("rule_04", without("message")),
        ("rule_04", moved("delta", "waiting")),
        ("rule_04", moved("question", "patch")),
        ("rule_04", put(good()["message"], "waiting")),
        ("rule_04", moved("started", "message")),
        ("rule_04", without("started")),
        ("rule_04", put(good()["started"], "words")),
        ("rule_05", without("patch end")),
        ("rule_05", moved("patch end", "idle")),
        ("rule_05", put(good()["patch end"], "diff")),
        ("rule_06", without("waiting")),
        ("rule_06", moved("waiting", "answer")),
        ("rule_07", moved("usage", "message end")),
        ("rule_08", moved("diff", "patch end")),
        ("rule_08", put(good()["diff"], "usage")),
        ("rule_09", replaced("ended", turn("completed", "failed", FAILED))),
        ("rule_09", replaced("ended", turn("completed", "failed"))),
        ("rule_09", replaced("ended", turn("completed", "completed", FAILED))),
        ("rule_09", put(final(OTHER), "ended")),
        ("rule_10", put(good()["ended"], "idle")),
        ("rule_10", moved("diff", "idle")),
        ("rule_10", without("ended")),
        ("rule_11", moved("idle", "ended")),
        ("rule_12", without("resolved")),
        ("rule_12", moved("resolved", "idle")),
        ("rule_12", put(good()["resolved"], "going on")),
        ("rule_13", heard_by_both),
    ],
)
def test_every_rule_can_be_broken(rule: str, change: Callable[[Record], list[Logged]]) -> None:
    broken = violated_thread_invariants(change(good()))
    assert any(problem.startswith(rule) for problem in broken), broken


def test_the_final_error_is_that_of_the_turn() -> None:
    failed = replaced("ended", turn("completed", "failed", FAILED))(good())
    for error, problems in ((FAILED, 0), (OTHER, 1)):
        record = [*failed[:-2], final(error), *failed[-2:]]
        assert len(violated_thread_invariants(record)) == problems


def test_an_item_is_stored_as_it_was_told(tmp_path: Path) -> None:
    thread = "01a1fc2e-450f-7ed0-9b52-64722a96c4dc"
    path = tmp_path / f"rollout-2026-01-01T00-00-00-{thread}.jsonl"
    said = {"type": "agent_message", "message": "a", "turn_id": "t", "item_id": "m"}
    path.write_text(json.dumps({"timestamp": "", "type": "event_msg", "payload": said}) + "\n")
    [shown] = stored_items(thread, path).values()
    told = {"method": "item/completed", "params": {"threadId": thread, "turnId": "t", "item": shown}}
    assert stored_otherwise([told], [path]) == []
    for other in ({"text": "ab"}, {"id": "another"}):
        changed: Json = {**told, "params": {"threadId": thread, "turnId": "t", "item": {**shown, **other}}}
        assert len(stored_otherwise([changed], [path])) == 1
