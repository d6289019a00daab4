"""A recorded client becomes steps, with what each message waits for."""

import ast

from app_server.inspector.scenario import Names, Receive, Send, as_test, steps_of
from protocol.base import Json
from tests.unit.inspector.recorded_turn import HEAD, TURN_WITH_APPROVAL, records


def shape(step: Send | Receive) -> tuple[Json, ...]:
    match step:
        case Send(message, to):
            return ("send", message.get("method", "answer"), to)
        case Receive(kind, which, count):
            return ("receive", kind, which, count)


APPROVAL = "item/commandExecution/requestApproval"


def test_each_message_waits_for_what_came_before_it() -> None:
    assert [shape(step) for step in steps_of(records(TURN_WITH_APPROVAL))] == [
        ("send", "initialize", None),
        ("receive", "answer", "1", 1),
        ("send", "turn/start", None),
        ("receive", "answer", "2", 1),
        ("receive", "turn starts", "", 1),
        ("receive", "request", APPROVAL, 1),
        ("send", "answer", (APPROVAL, 1)),
        ("receive", "turn ends", "", 1),
    ]


def test_something_said_in_the_middle_of_a_message_waits_for_its_beginning() -> None:
    record = [*TURN_WITH_APPROVAL[:14], (TURN_WITH_APPROVAL[0][0], {"id": 3, "method": "turn/interrupt"})]
    assert [shape(step) for step in steps_of(records(record))][-2:] == [
        ("receive", "delta", "", 1),
        ("send", "turn/interrupt", None),
    ]


def test_ids_are_replaced_by_those_of_the_replay() -> None:
    names = Names()
    names.learn(
        {"thread": {"id": "old"}, "turns": [{"id": "t1"}]}, {"thread": {"id": "new"}, "turns": [{"id": "t9"}]}
    )
    assert names.put_into({"threadId": "old", "of": ["t1", "t2", 5]}) == {
        "threadId": "new",
        "of": ["t9", "t2", 5],
    }


def test_an_exported_test_is_python_that_has_the_steps() -> None:
    steps = steps_of(records(TURN_WITH_APPROVAL))
    text = as_test(HEAD, steps)
    assert "sk-" not in text.replace("'sk-abcdefghijklmnopqrstuvwx'", "")
    values: dict[str, Json] = {"Send": Send, "Receive": Receive}
    assigned = [node for node in ast.parse(text).body if isinstance(node, ast.Assign)]
    [given] = [node.value for node in assigned if ast.unparse(node.targets[0]) == "STEPS"]
    again = eval(ast.unparse(given), values)
    assert [shape(step) for step in again] == [shape(step) for step in steps]
