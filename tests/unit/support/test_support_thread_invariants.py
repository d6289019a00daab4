"""Each order rule of the thread API can be broken, and a good record breaks none."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from protocol.base import Json
from tests.support.client import Logged
from tests.support.thread_invariants import stored_items, stored_otherwise, violated_thread_invariants

T, U = "thread", "turn"
ACTIVE: Json = {"type": "active", "activeFlags": []}
WAITING: Json = {"type": "active", "activeFlags": ["waitingOnApproval"]}
DIFF = "diff --git a/x b/x"


def said(method: str, **params: Json) -> Logged:
    return Logged(False, {"method": method, "params": {"threadId": T, **params}})


def status(value: Json) -> Logged:
    return said("thread/status/changed", status=value)


def item(method: str, kind: str, id: str, **fields: Json) -> Logged:
    return said(f"item/{method}", turnId=U, item={"type": kind, "id": id, **fields})


def turn(method: str, state: str = "completed", error: Json = None) -> Logged:
    return said(f"turn/{method}", turn={"id": U, "status": state, "error": error})


def asked(id: int, method: str, **params: Json) -> Logged:
    return Logged(True, {"id": id, "method": method, "params": params})


def answered(id: int, **result: Json) -> Logged:
    return Logged(False, {"id": id, "result": result})


def good() -> dict[str, Logged]:
    """A turn with a message, a patch that is asked about, and a diff; a name for each line."""
    question = {"threadId": T, "turnId": U, "itemId": "patch"}
    return {
        "start": asked(1, "thread/start"),
        "thread": answered(1, thread={"id": T}),
        "announced": Logged(False, {"method": "thread/started", "params": {"thread": {"id": T}}}),
        "begin": asked(2, "turn/start", threadId=T),
        "turn": answered(2, turn={"id": U}),
        "active": status(ACTIVE),
        "started": turn("started", "inProgress"),
        "words": item("started", "userMessage", "words"),
        "words end": item("completed", "userMessage", "words"),
        "message": item("started", "agentMessage", "message"),
        "delta": said("item/agentMessage/delta", turnId=U, itemId="message", delta="x"),
        "message end": item("completed", "agentMessage", "message", text="x"),
        "waiting": status(WAITING),
        "patch": item("started", "fileChange", "patch"),
        "question": Logged(False, {"id": 0, "method": "item/fileChange/requestApproval", "params": question}),
        "answer": Logged(True, {"id": 0, "result": {"decision": "accept"}}),
        "resolved": said("serverRequest/resolved", requestId=0),
        "going on": status(ACTIVE),
        "patch end": item("completed", "fileChange", "patch"),
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
    """A listener of the conversation API hears two messages in the other order."""
    second = [item("started", "agentMessage", "m2"), item("completed", "agentMessage", "m2", text="y")]
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


def test_a_command_on_a_terminal_may_outlive_its_turn() -> None:
    command = item("started", "commandExecution", "c", processId="7")
    record = [*put(command, "waiting")(good()), item("completed", "commandExecution", "c", processId="7")]
    assert violated_thread_invariants(record) == []


def test_a_client_that_left_need_not_have_received_the_end() -> None:
    record = without("ended", "idle")(good())
    assert violated_thread_invariants(record, left_early=True) == []
    assert violated_thread_invariants(record) != []


@pytest.mark.parametrize(
    ("rule", "change"),
    [
        ("rule_01", moved("turn", "words")),
        ("rule_01", moved("thread", "begin")),
        ("rule_02", moved("announced", "words")),
        ("rule_02", without("thread")),
        ("rule_02", put(good()["announced"], "idle")),
        ("rule_03", moved("active", "words")),
        ("rule_03", moved("message", "words end")),
        ("rule_03", without("words", "words end", "message", "message end", "delta")),
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
