"""Items, turns and errors of the engine in the shapes of the thread API."""

from typing import get_args

import pytest

from app_server.engine.storage.turn_fold import ItemIds
from app_server.server.apis.v2.thread_items import NO_REVIEW, command_actions, thread_item
from app_server.server.apis.v2.turn_shapes import ended_turn, pending_turn, shown_items, shown_turn
from app_server.server.apis.v2.v2_errors import codex_error_info, turn_error
from app_server_protocol.encoding import Json
from app_server_protocol.engine import items as engine
from app_server_protocol.engine.errors import ErrorClass, TurnError
from app_server_protocol.engine.events import EndedItem, TurnRecord, TurnStatus
from app_server_protocol.engine.item_values import (
    AddFileChange,
    DeleteFileChange,
    ListFilesCommand,
    ReadCommand,
    ReviewCodeLocation,
    ReviewFinding,
    ReviewLineRange,
    ReviewOutputEvent,
    SearchCommand,
    UnknownCommand,
    UpdateFileChange,
)
from app_server_protocol.engine.items import CommandSource, ItemStatus
from app_server_protocol.event_items import ImageInput, LocalImageInput, TextInput
from app_server_protocol.mcp import CallToolResult, ErrResult, McpInvocation, OkResult
from app_server_protocol.responses import OtherAction, SearchAction
from app_server_protocol.v2.turn import TurnItemsView
from tests.server.apis.v2.recorded import validator

TIMES = {"startedAtMs": 5, "completedAtMs": 6}
FINDING = ReviewFinding(
    title="Off by one",
    body="It ends too late.\nSee above.",
    confidence_score=0.5,
    priority=1,
    code_location=ReviewCodeLocation(
        absolute_file_path="/w/a.py", line_range=ReviewLineRange(start=1, end=2)
    ),
)
COMMAND = engine.CommandExecution(
    id="c",
    command=("/bin/bash", "-lc", "echo 'a b'"),
    cwd="/w",
    parsed=(
        ReadCommand(cmd="cat a", name="a", path="a"),
        ReadCommand(cmd="cat /b", name="b", path="/b"),
        ListFilesCommand(cmd="ls"),
        SearchCommand(cmd="rg x", query="x"),
    ),
)
RUNNING = {
    "type": "commandExecution",
    "id": "c",
    "command": "/bin/bash -lc \"echo 'a b'\"",
    "cwd": "/w",
    "processId": None,
    "source": "agent",
    "status": "inProgress",
    "commandActions": [
        {"type": "read", "command": "cat a", "name": "a", "path": "/w/a"},
        {"type": "read", "command": "cat /b", "name": "b", "path": "/b"},
        {"type": "listFiles", "command": "ls", "path": None},
        {"type": "search", "command": "rg x", "query": "x", "path": None},
    ],
    "aggregatedOutput": None,
    "exitCode": None,
    "durationMs": None,
    "pluginId": None,
    "scriptPath": None,
}
MCP = {
    "type": "mcpToolCall",
    "id": "m",
    "server": "s",
    "tool": "t",
    "arguments": {"x": 1},
    "status": "completed",
    "result": None,
    "error": None,
    "durationMs": 250,
    "appContext": None,
    "pluginId": None,
    "readOnlyHint": None,
    "environmentId": None,
    "mcpAppUi": None,
}
CALL = McpInvocation(server="s", tool="t", arguments={"x": 1})
CALLED = engine.McpToolCall(
    id="m",
    invocation=CALL,
    status=ItemStatus.COMPLETED,
    seconds=0.25,
    result=OkResult(
        ok=CallToolResult.model_validate(
            {"content": [{"type": "text", "text": "x"}], "structuredContent": {"y": 2}, "_meta": {"z": 3}}
        )
    ),
)

ITEMS: list[tuple[engine.Item, Json]] = [
    (
        engine.UserMessage(
            "u",
            (TextInput(text="hi"), ImageInput(image_url="data:x")),
            "mine",
            sent=(TextInput(text="hi"), LocalImageInput(path="/x.png")),
        ),
        {
            "type": "userMessage",
            "id": "u",
            "clientId": "mine",
            "content": [
                {"type": "text", "text": "hi", "text_elements": []},
                {"type": "localImage", "path": "/x.png", "detail": None},
            ],
        },
    ),
    (
        engine.AgentMessage("a", ("Hel", "lo"), "final_answer"),
        {"type": "agentMessage", "id": "a", "text": "Hello", "phase": "final_answer", "memoryCitation": None},
    ),
    (
        engine.AgentMessage("a", ("x",), "a phase of the future"),
        {"type": "agentMessage", "id": "a", "text": "x", "phase": None, "memoryCitation": None},
    ),
    (
        engine.Reasoning("r", ("s",), ("raw",), True),
        {"type": "reasoning", "id": "r", "summary": ["s"], "content": ["raw"]},
    ),
    (COMMAND, RUNNING),
    (
        engine.CommandExecution(
            **{name: getattr(COMMAND, name) for name in ("id", "command", "cwd", "parsed")},
            source=CommandSource.USER_SHELL,
            status=ItemStatus.FAILED,
            process_id="9",
            output="out",
            exit_code=3,
            seconds=0.0126,
        ),
        {
            **RUNNING,
            "source": "userShell",
            "status": "failed",
            "processId": "9",
            "aggregatedOutput": "out",
            "exitCode": 3,
            "durationMs": 13,
        },
    ),
    (
        engine.FileChange(
            id="f",
            changes={
                "/w/a": AddFileChange(content="a\n"),
                "/w/d": DeleteFileChange(content="d\n"),
                "/w/u": UpdateFileChange(unified_diff="@@", move_path="/w/v"),
            },
            status=ItemStatus.DECLINED,
        ),
        {
            "type": "fileChange",
            "id": "f",
            "changes": [
                {"path": "/w/a", "kind": {"type": "add"}, "diff": "a\n"},
                {"path": "/w/d", "kind": {"type": "delete"}, "diff": "d\n"},
                {
                    "path": "/w/u",
                    "kind": {"type": "update", "move_path": "/w/v"},
                    "diff": "@@\n\nMoved to: /w/v",
                },
            ],
            "status": "declined",
        },
    ),
    (
        CALLED,
        {
            **MCP,
            "result": {
                "content": [{"type": "text", "text": "x"}],
                "structuredContent": {"y": 2},
                "_meta": {"z": 3},
            },
        },
    ),
    (
        engine.McpToolCall(id="m", invocation=CALL, status=ItemStatus.DECLINED, result=ErrResult(err="no")),
        {**MCP, "status": "failed", "error": {"message": "no"}, "durationMs": None},
    ),
    (
        engine.DynamicToolCall(
            id="d",
            tool="t",
            arguments=None,
            status=ItemStatus.COMPLETED,
            content=({"type": "inputText", "text": "x"}, {"type": "inputImage", "imageUrl": "u"}, {"odd": 1}),
            success=True,
            seconds=1,
        ),
        {
            "type": "dynamicToolCall",
            "id": "d",
            "namespace": None,
            "tool": "t",
            "arguments": None,
            "status": "completed",
            "contentItems": [
                {"type": "inputText", "text": "x"},
                {"type": "inputImage", "imageUrl": "u"},
                {"type": "inputText", "text": '{"odd": 1}'},
            ],
            "success": True,
            "durationMs": 1000,
        },
    ),
    (
        engine.WebSearch("w", "q", SearchAction(query="q")),
        {
            "type": "webSearch",
            "id": "w",
            "query": "q",
            "action": {"type": "search", "query": "q", "queries": None},
            "results": None,
        },
    ),
    (
        engine.WebSearch("w", "", OtherAction.model_validate({"type": "find_in_page", "pattern": "p"})),
        {
            "type": "webSearch",
            "id": "w",
            "query": "",
            "action": {"type": "findInPage", "pattern": "p", "url": None},
            "results": None,
        },
    ),
    (engine.ImageView("i", "/x.png"), {"type": "imageView", "id": "i", "path": "/x.png"}),
    (
        engine.EnteredReview("e", "the prompt", "the hint"),
        {"type": "enteredReviewMode", "id": "e", "review": "the hint"},
    ),
    (
        engine.ExitedReview("x", ReviewOutputEvent(findings=(FINDING,), overall_explanation="Nearly.")),
        {
            "type": "exitedReviewMode",
            "id": "x",
            "review": "Nearly.\n\nReview comment:\n\n- Off by one — /w/a.py:1-2\n  It ends too late.\n  See above.",
        },
    ),
    (engine.ExitedReview("x", None), {"type": "exitedReviewMode", "id": "x", "review": NO_REVIEW}),
    (engine.ContextCompaction("k"), {"type": "contextCompaction", "id": "k"}),
    (engine.Plan("p", "1. look"), {"type": "plan", "id": "p", "text": "1. look"}),
    (
        engine.HookPrompt("h", (engine.HookPromptFragment(text="go on", hook_run_id="stop:0:/h"),)),
        {"type": "hookPrompt", "id": "h", "fragments": [{"text": "go on", "hookRunId": "stop:0:/h"}]},
    ),
]


@pytest.mark.parametrize(("item", "shown"), ITEMS, ids=lambda value: type(value).__name__)
def test_an_item_has_all_of_its_fields(item: engine.Item, shown: Json) -> None:
    value = thread_item(item, 5, 6).to_value()
    assert value == {**shown, **TIMES}
    validator("ThreadItem").validate(value)


def test_every_kind_of_item_is_shown() -> None:
    assert {type(item) for item, _ in ITEMS} == set(get_args(engine.Item))


@pytest.mark.parametrize("over_the_conversation_api", [False, True])
def test_raw_reasoning_is_always_shown(over_the_conversation_api: bool) -> None:
    """Models with open weights provide no other reasoning."""
    item = engine.Reasoning("r", (), ("raw",), show_content=over_the_conversation_api)
    assert thread_item(item, 5, 6).to_value()["content"] == ["raw"]


@pytest.mark.parametrize("kind", ["open_page", "of the future"])
def test_other_actions_on_the_web(kind: str) -> None:
    action = OtherAction.model_validate({"type": kind, "url": "https://x"})
    value = thread_item(engine.WebSearch("w", "", action), 5, None).to_value()
    validator("ThreadItem").validate(value)
    expected = {"type": "openPage", "url": "https://x"} if kind == "open_page" else {"type": "other"}
    assert value["action"] == expected


def test_times_that_old_files_do_not_say_are_null() -> None:
    value = thread_item(engine.ContextCompaction("k"), 0, 0).to_value()
    assert (value["startedAtMs"], value["completedAtMs"]) == (None, None)


# --- turns
RECORD = TurnRecord(
    id="t",
    state=TurnStatus.COMPLETED,
    items=tuple(
        EndedItem(item, 5, 6, cut=cut)
        for item, cut in (
            (engine.UserMessage("u1", (TextInput(text="one"),)), False),
            (engine.AgentMessage("a1", ("first",)), False),
            (engine.UserMessage("u2", (TextInput(text="two"),)), False),
            (engine.AgentMessage("a2", ("last",)), False),
            (engine.AgentMessage("a3", ("cut",)), True),
        )
    ),
    started_at=5.0,
    ended_at=7.0,
    seconds=1.5,
)


@pytest.mark.parametrize(
    ("view", "ids"),
    [
        (TurnItemsView.NOT_LOADED, []),
        (TurnItemsView.SUMMARY, ["u1", "a2"]),
        (TurnItemsView.FULL, ["u1", "a1", "u2", "a2", "a3"]),
    ],
)
def test_a_turn_in_three_views(view: TurnItemsView, ids: list[str]) -> None:
    value = shown_turn(RECORD, view).to_value()
    validator("Turn").validate(value)
    assert [item["id"] for item in value["items"]] == ids
    assert (value["itemsView"], value["startedAt"], value["completedAt"], value["durationMs"]) == (
        view,
        5,
        7,
        1500,
    )


def test_the_end_of_a_turn_shows_its_last_whole_message() -> None:
    assert [item["id"] for item in ended_turn(RECORD).to_value()["items"]] == ["a2"]
    failed = TurnRecord(id="t", state=TurnStatus.FAILED, items=RECORD.items, error=TurnError("no"))
    value = ended_turn(failed).to_value()
    assert (value["items"], value["itemsView"]) == ([], "notLoaded")
    assert value["error"] == {"message": "no", "codexErrorInfo": None, "additionalDetails": None}


def test_a_review_that_is_read_again_has_its_message() -> None:
    ended = EndedItem(engine.ExitedReview("x", ReviewOutputEvent(overall_explanation="Fine.")), 5, 6)
    record = TurnRecord(id="t", state=TurnStatus.COMPLETED, items=(ended,))
    shown = shown_turn(record, TurnItemsView.FULL).to_value()["items"]
    assert [(each["type"], each.get("text")) for each in shown] == [
        ("exitedReviewMode", None),
        ("agentMessage", "Fine."),
    ]
    assert [each.to_value() for each in shown_items(ended)] == shown
    assert ended_turn(record).to_value()["items"] == shown[1:]


def test_a_turn_that_was_taken_in() -> None:
    value = pending_turn("t").to_value()
    validator("Turn").validate(value)
    assert (value["status"], value["startedAt"], value["rootTurnId"]) == ("inProgress", None, "t")


# --- errors
@pytest.mark.parametrize("error_class", [*ErrorClass, None])
def test_every_class_of_errors_is_known(error_class: ErrorClass | None) -> None:
    value = turn_error(TurnError("m", error_class, 503)).to_value()
    validator("TurnError").validate(value)
    assert (value["codexErrorInfo"] is None) == (error_class is None)


def test_the_status_of_the_answer_is_kept() -> None:
    info = codex_error_info(TurnError("m", ErrorClass.RESPONSE_TOO_MANY_FAILED_ATTEMPTS, 502))
    assert not isinstance(info, str | None)
    assert info.to_value() == {"responseTooManyFailedAttempts": {"httpStatusCode": 502}}


# --- ids
def test_an_id_that_another_item_was_given_is_not_given_again() -> None:
    for order in (["a", "a", "a-2", "a"], ["a", "a-2", "a", "a", "a-2"]):
        ids = ItemIds()
        given = [ids.reserve(id) for id in order]
        assert len(set(given)) == len(given)
        assert given[0] == "a"


def test_a_script_with_an_unknown_part_is_unknown_as_a_whole() -> None:
    """`echo` is not among the parsed parts, so clients would not see it."""
    parsed = (
        ReadCommand(cmd="cat a", name="a", path="a"),
        UnknownCommand(cmd="make"),
    )
    [action] = command_actions(parsed, ("bash", "-lc", "echo x; cat a; make"), "/w")
    assert action.to_value() == {"type": "unknown", "command": "echo x; cat a; make"}
    [action] = command_actions(parsed[1:], ("make", "a b"), "/w")
    assert action.to_value() == {"type": "unknown", "command": "make 'a b'"}
