"""The page's facts about each message, and the steps of a recorded client."""

import ast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app_server.cli.inspect import analysis
from app_server.cli.inspect.scenario import Names, Receive, Send, as_test, steps_of
from app_server.cli.inspect.session_records import Source, record_of
from app_server.cli.inspect.shapes import SCHEMA, UNKNOWN_METHOD
from app_server_protocol.encoding import Json
from tests.cli.inspect.recorded_turn import (
    CLIENT,
    HEAD,
    SERVER,
    THREAD,
    TURN,
    TURN_WITH_APPROVAL,
    analysed,
    asked,
    item,
    records,
    rules,
    told,
)

ACCEPTED = {"decision": "accept"}


def said(*violations: tuple[str, str]) -> list[str]:
    return [rule for rule, _ in violations]


def test_answers_are_paired_in_both_directions() -> None:
    entries = analysed(TURN_WITH_APPROVAL)
    pairs = [(each.method, each.request, each.latency) for each in entries if each.request >= 0]
    assert pairs == [
        ("initialize", 0, 10.0),
        ("turn/start", 2, 10.0),
        ("item/commandExecution/requestApproval", 8, 10.0),
    ]


def test_a_question_that_another_client_answers_is_over() -> None:
    """With a shared server this client never answers. A question that it has answered is not open any more, either."""
    by_another = [each for each in TURN_WITH_APPROVAL if each != (CLIENT, {"id": 0, "result": ACCEPTED})]
    assert [each.withdraws for each in analysed(by_another) if each.withdraws >= 0] == [8]
    cancelled = SERVER, {"method": "$/cancel_request", "params": {"requestId": 0}}
    assert analysed([TURN_WITH_APPROVAL[8], cancelled])[1].withdraws == 0
    assert [each.withdraws for each in analysed(TURN_WITH_APPROVAL) if each.withdraws >= 0] == []


def test_a_turn_of_the_thread_api_has_its_phases() -> None:
    entries = [each for each in analysed(TURN_WITH_APPROVAL) if each.subject.phase]
    assert [each.subject.phase for each in entries] == [
        analysis.TURN_STARTS,
        analysis.ITEM_STARTS,
        analysis.ITEM_ENDS,
        analysis.ITEM_STARTS,
        *[analysis.DELTA] * 3,
        analysis.ITEM_ENDS,
        analysis.TURN_ENDS,
    ]
    assert {(each.subject.thread, each.subject.turn) for each in entries} == {(THREAD, TURN)}
    assert [each.subject.kind for each in entries if each.subject.phase == analysis.ITEM_STARTS] == [
        "commandExecution",
        "agentMessage",
    ]


def test_what_is_told_of_a_past_turn_begins_none() -> None:
    """A fork is sent the tokens that its source used; a turn may be interrupted after its end."""
    usage = told("thread/tokenUsage/updated", threadId="fork", turnId=TURN, tokenUsage={})
    late = asked(90, "turn/interrupt", threadId="fork", turnId=TURN)
    entries = analysed([*TURN_WITH_APPROVAL, usage, late, (SERVER, {"id": 90, "result": {}})])
    assert [(each.subject.thread, each.subject.turn) for each in entries[-3:]] == [("fork", "")] * 3
    assert entries[3].method == "turn/start"
    assert entries[3].subject.turn == TURN


def test_a_turn_of_the_conversation_api_has_its_phases() -> None:
    def event(kind: str, **fields: Json) -> tuple[Source, Json]:
        params = {"id": "3", "conversationId": "c", "msg": {"type": kind, **fields}}
        return SERVER, {"method": f"codex/event/{kind}", "params": params}

    entries = analysed(
        [
            event("task_started"),
            event("item_started", item={"AgentMessage": {"id": "m", "content": []}}),
            event("agent_message_content_delta", item_id="m", delta="x"),
            event("item_completed", item={"AgentMessage": {"id": "m", "content": []}}),
            event("exec_command_begin", call_id="call"),
            event("exec_command_output_delta", call_id="call"),
            event("exec_command_end", call_id="call"),
            event("task_complete"),
        ]
    )
    found = [(each.subject.item, each.subject.kind, each.subject.phase) for each in entries]
    assert found == [
        ("", "", analysis.TURN_STARTS),
        ("m", "AgentMessage", analysis.ITEM_STARTS),
        ("m", "", analysis.DELTA),
        ("m", "AgentMessage", analysis.ITEM_ENDS),
        ("call", "exec_command", analysis.ITEM_STARTS),
        ("call", "", analysis.DELTA),
        ("call", "exec_command", analysis.ITEM_ENDS),
        ("", "", analysis.TURN_ENDS),
    ]
    assert {(each.subject.thread, each.subject.turn) for each in entries} == {("c", "3")}


def from_server(**message: Json) -> tuple[Source, Json]:
    """Return a message of a server that speaks the Agent Client Protocol."""
    return SERVER, {"jsonrpc": "2.0", **message}


def session_update(**update: Json) -> tuple[Source, Json]:
    return from_server(method="session/update", params={"sessionId": "s", "update": update})


def call(status: str, kind: str = "tool_call_update") -> tuple[Source, Json]:
    return session_update(sessionUpdate=kind, toolCallId="t", title="ls", kind="execute", status=status)


def announced(status: str = "pending") -> tuple[Source, Json]:
    return call(status, "tool_call")


def chunk(text: str) -> tuple[Source, Json]:
    return session_update(sessionUpdate="agent_message_chunk", content={"type": "text", "text": text})


def question(id: int) -> tuple[Source, Json]:
    params = {"sessionId": "s", "toolCall": {"toolCallId": "t"}, "options": [{"optionId": "yes"}]}
    return from_server(id=id, method="session/request_permission", params=params)


def failed(id: int, kind: str) -> tuple[Source, Json]:
    return from_server(id=id, error={"code": -1, "message": "x", "data": {"kind": kind}})


OPENED = (
    asked(0, "initialize", protocolVersion=1),
    from_server(id=0, result={"protocolVersion": 1}),
    asked(1, "session/new", cwd="/", mcpServers=[]),
    from_server(id=1, result={"sessionId": "s"}),
    asked(2, "session/prompt", sessionId="s", prompt=[]),
)
ENDED = from_server(id=2, result={"stopReason": "end_turn"})
LOAD, LOADED = asked(3, "session/load", sessionId="s", cwd="/", mcpServers=[]), from_server(id=3, result={})


def beside_turns(command: str) -> tuple[tuple[Source, Json], ...]:
    """Return a prompt with this command and its answer, behind the end of a prompt whose turn goes on."""
    words = [{"type": "text", "text": command}]
    return (
        failed(2, "session_not_found"),
        asked(4, "session/prompt", sessionId="s", prompt=words),
        from_server(id=4, result={"stopReason": "end_turn"}),
    )


def test_a_prompt_of_a_session_is_a_turn() -> None:
    entries = analysed([*OPENED, chunk("x"), announced(), call("completed"), ENDED])
    found = [(each.subject.turn, each.subject.item, each.subject.phase) for each in entries[4:]]
    assert found == [
        ("prompt 2", "", analysis.TURN_STARTS),
        ("prompt 2", "message", analysis.DELTA),
        ("prompt 2", "t", analysis.ITEM_STARTS),
        ("prompt 2", "t", analysis.ITEM_ENDS),
        ("prompt 2", "", analysis.TURN_ENDS),
    ]
    assert rules(entries) == []


GOES_BACK = "session_08_a_call_is_announced_once_and_goes_forward"


@pytest.mark.parametrize(
    ("messages", "broken"),
    [
        pytest.param([call("completed")], [GOES_BACK], id="never announced"),
        pytest.param([ENDED, chunk("late")], ["session_06_updates_belong_to_a_prompt"], id="behind a prompt"),
        pytest.param(
            [(SERVER, {"id": 9, "result": {}})],
            ["rpc_01_an_answer_has_one_request", "session_01_every_message_has_the_version"],
            id="no version, no request",
        ),
        pytest.param(
            [announced(), failed(2, "session_not_found")], [], id="a prompt that is refused ends no turn"
        ),
        pytest.param(
            [announced(), *beside_turns("/status")],
            [],
            id="a command that is answered beside a turn ends none",
        ),
        pytest.param(
            [announced(), *beside_turns("/compact")],
            ["session_05_no_call_is_open_after_its_prompt"],
            id="one that waits for the turn does",
        ),
        pytest.param(
            [announced(), failed(2, "turn_failed")],
            ["session_05_no_call_is_open_after_its_prompt"],
            id="a prompt that failed ends one",
        ),
        pytest.param(
            [announced(), LOAD, call("in_progress"), LOADED, announced(), call("completed")],
            [],
            id="a session that is opened again is told of its calls again",
        ),
        pytest.param([announced(), LOAD, LOADED, announced(), announced()], [GOES_BACK], id="but once"),
        pytest.param(
            [announced(), LOAD, failed(3, "not_found"), call("completed")],
            [],
            id="a session that cannot be opened again goes on with its calls",
        ),
        pytest.param(
            [announced(), LOAD, failed(3, "not_found"), call("completed"), call("failed")],
            [GOES_BACK],
            id="forward",
        ),
        pytest.param(
            [announced(), LOAD, question(0)], [], id="a question on its way is about a call from before"
        ),
        pytest.param(
            [announced(), LOAD, LOADED, question(0)],
            ["session_03_a_question_follows_its_call"],
            id="behind it is not",
        ),
    ],
)
def test_order_rules_of_sessions_are_marked_at_the_last_message(
    messages: list[tuple[Source, Json]], broken: list[str]
) -> None:
    entries = analysed([*OPENED, *messages])
    assert rules(entries[:-1]) == []
    assert rules(entries[-1:]) == broken


def test_a_broken_order_is_marked_at_its_message() -> None:
    late = told("item/agentMessage/delta", turnId=TURN, itemId="message", delta="too late")
    entries = analysed([*TURN_WITH_APPROVAL, late])
    assert rules(entries[:-1]) == []
    assert rules(entries[-1:]) == [
        "rule_04_an_item_starts_before_anything_about_it",
        "rule_10_nothing_follows_the_end_of_a_turn",
    ]


def test_what_is_missing_is_marked_at_the_servers_exit() -> None:
    def exit_after(*events: bytes) -> list[str]:
        analyzer = analysis.Analyzer()
        lines = [
            (CLIENT, b'{"id":1,"method":"initialize","params":{}}'),
            *((Source.INSPECTOR, each) for each in events),
        ]
        entries = [analyzer.entry(*record_of(source, 0, line)) for source, line in lines]
        return rules(entries)

    left, exited = b'{"event":"ended","source":"client"}', b'{"event":"exited","status":1}'
    assert exit_after(exited) == ["rpc_04_every_request_is_answered"]
    assert exit_after(left, exited) == []


def test_shapes_are_held_against_the_protocol() -> None:
    entries = analysed(
        [
            asked(1, "thread/start", cwd=5),
            (SERVER, {"id": 1, "result": {"thread": 5}}),
            told("item/agentMessage/delta", turnId=TURN, itemId="message", delta=5),
            asked(2, "thread/strat"),
            (SERVER, {"id": 2, "error": {"code": "x"}}),
            (SERVER, {"result": 5}),
            (CLIENT, {"method": "initialized"}),
        ]
    )
    found = [said(*each.violations) for each in entries]
    assert [SCHEMA in each for each in found] == [True, True, True, False, True, True, False]
    assert found[3] == [UNKNOWN_METHOD]
    assert "cwd" in dict(entries[0].violations)[SCHEMA]


def test_what_is_no_message_is_an_entry_too() -> None:
    analyzer = analysis.Analyzer()
    lines = [
        (CLIENT, b"no json"),
        (SERVER, b"\xff"),
        (SERVER, b"[1]"),
        (SERVER, b""),
        (Source.STDERR, b"log"),
    ]
    entries = [analyzer.entry(*record_of(source, 0, line)) for source, line in lines]
    assert [said(*each.violations) for each in entries] == [[SCHEMA], [SCHEMA], [SCHEMA], [], []]
    assert {each.kind for each in entries} == {"text"}


def test_long_messages_are_cut_for_the_page() -> None:
    long = analysed([told("warning", message="x" * 200)])[0].row(100)
    assert len(long["text"]) == 100
    assert long["cut"] is True
    assert analysed([item("started", "agentMessage", "m")])[0].row(100)["n"] == 0


messages: st.SearchStrategy[Json] = st.dictionaries(
    st.sampled_from(["id", "method", "params", "result", "error", "jsonrpc"]),
    st.sampled_from(
        [
            *("turn/started", "turn/completed", "item/started", "item/completed", "session/update"),
            *("initialize", "turn/start", "codex/event/item_started", "thread/status/changed"),
            *(None, 1, [], {}, {"msg": {"item": 5}}, {"turn": 5}, {"item": {"id": 1}}, {"update": 5}),
            *({"sessionId": 1, "update": {}}, {"threadId": [], "turn": {"id": {}}}, {"protocolVersion": 1}),
        ]
    ),
)


@settings(max_examples=50)
@given(st.lists(st.tuples(st.sampled_from([CLIENT, SERVER]), messages), max_size=12))
def test_no_message_is_too_much(stream: list[tuple[Source, Json]]) -> None:
    assert len(analysed(stream)) == len(stream)


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
