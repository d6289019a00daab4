"""Calls of the model in rollouts of other programs, as items with their ends."""

import json

import pytest

from app_server.core.rollout.stored_calls import ended_item, item_of_call
from app_server.core.shell.summaries import parse_command
from protocol.base import Json
from protocol.engine.items import (
    CommandExecution,
    CommandSource,
    FileChange,
    ImageView,
    ItemStatus,
    McpToolCall,
    WebSearch,
)
from protocol.events.commands import DeleteFileChange
from protocol.mcp import ErrResult, OkResult
from protocol.structs import replace
from tests.unit.patch.worlds import wrap

PATCH = wrap("*** Add File: new", "+x", "*** Update File: old", "*** Move to: sub/moved", "@@", "-a", "+b")


def function(name: str, arguments: Json, **more: Json) -> Json:
    return {"type": "function_call", "call_id": "c", "name": name, "arguments": json.dumps(arguments), **more}


@pytest.mark.parametrize(
    ("call", "command", "cwd", "source"),
    [
        (function("shell", {"command": ["ls", "a"]}), ("ls", "a"), "/ws", CommandSource.AGENT),
        (
            function("container.exec", {"command": ["ls", 5], "workdir": "sub/../x"}),
            ("ls",),
            "/ws/x",
            CommandSource.AGENT,
        ),
        (
            function("shell_command", {"command": "ls | wc", "workdir": "/tmp"}),
            ("sh", "-c", "ls | wc"),
            "/tmp",
            CommandSource.AGENT,
        ),
        (function("exec_command", {"cmd": "ls"}), ("sh", "-c", "ls"), "/ws", CommandSource.TERMINAL),
        (
            {
                "type": "local_shell_call",
                "call_id": "c",
                "action": {"command": ["ls"], "working_directory": "sub"},
            },
            ("ls",),
            "/ws/sub",
            CommandSource.PROVIDER,
        ),
    ],
)
def test_a_call_of_a_shell_is_a_command(
    call: Json, command: tuple[str, ...], cwd: str, source: CommandSource
) -> None:
    item = item_of_call(call, "/ws")
    assert isinstance(item, CommandExecution)
    assert (item.id, item.command, item.cwd, item.source) == ("c", command, cwd, source)


@pytest.mark.parametrize(
    "call",
    [
        function("apply_patch", {"input": PATCH}),
        function("shell", {"command": ["apply_patch", PATCH]}),
        function("shell", {"command": ["sh", "-c", f"cd . && apply_patch <<'EOF'\n{PATCH}\nEOF"]}),
        {"type": "custom_tool_call", "call_id": "c", "name": "apply_patch", "input": PATCH},
    ],
)
def test_a_patch_is_a_change_of_files_however_it_was_called(call: Json) -> None:
    item = item_of_call(call, "/ws")
    assert isinstance(item, FileChange)
    assert {path: change.to_value() for path, change in item.changes.items()} == {
        "/ws/new": {"content": "x\n"},
        "/ws/old": {"unified_diff": "@@\n-a\n+b\n", "move_path": "/ws/sub/moved"},
    }


def test_other_calls() -> None:
    assert item_of_call(function("view_image", {"path": "a.png"}), "/ws") == ImageView("c", "/ws/a.png")
    called = item_of_call(function("mcp__time__now", {"zone": "UTC"}), "/ws")
    assert isinstance(called, McpToolCall)
    assert (called.invocation.server, called.invocation.tool) == ("time", "now")
    assert called.invocation.arguments == {"zone": "UTC"}
    search = {"type": "web_search_call", "action": {"type": "search", "query": "q"}}
    assert item_of_call(search, "/ws") == WebSearch("search q", "q")
    for nothing in (
        function("unknown", {}),
        function("apply_patch", {"input": "none"}),
        function("shell", {"command": "ls"}),
        {"type": "function_call", "name": "shell", "arguments": "{}"},
        {"type": "local_shell_call", "call_id": "c", "action": {"command": "ls"}},
        {"type": "message", "call_id": "c"},
    ):
        assert item_of_call(nothing, "/ws") is None


@pytest.mark.parametrize(
    ("output", "status", "code", "printed"),
    [
        (json.dumps({"output": "hi", "metadata": {"exit_code": 0}}), ItemStatus.COMPLETED, 0, "hi"),
        (json.dumps({"output": "no", "metadata": {"exit_code": 2}}), ItemStatus.FAILED, 2, "no"),
        ("Exit code: 3\nWall time: 1 seconds\nOutput:\nbad", ItemStatus.FAILED, 3, "bad"),
        ("{broken", ItemStatus.FAILED, None, "{broken"),
        (None, ItemStatus.FAILED, None, ""),
    ],
)
def test_the_output_says_how_a_command_ended(
    output: Json, status: ItemStatus, code: int | None, printed: str
) -> None:
    item = item_of_call(function("shell", {"command": ["ls"]}), "/ws")
    assert item is not None
    ended = ended_item(item, output)
    assert isinstance(ended, CommandExecution)
    assert (ended.status, ended.exit_code, ended.output) == (status, code, printed)


SUCCESS = "Success. Updated the following files:\nA new\n"


@pytest.mark.parametrize(
    ("output", "done", "printed"),
    [
        (json.dumps({"output": SUCCESS, "metadata": {"exit_code": 0}}), True, SUCCESS),
        (json.dumps({"output": "no", "metadata": {"exit_code": 1}}), False, "no"),
        (f"Exit code: 0\nWall time: 1 seconds\nOutput:\n{SUCCESS}", True, SUCCESS),
        (f"Exit code: 1\nWall time: 1 seconds\nOutput:\n{SUCCESS}", False, SUCCESS),
        (SUCCESS, True, SUCCESS),
        ("patch rejected by user", False, "patch rejected by user"),
        (None, False, ""),
    ],
)
def test_the_output_says_how_a_patch_ended(output: Json, done: bool, printed: str) -> None:
    item = item_of_call(function("apply_patch", {"input": PATCH}), "/ws")
    assert isinstance(item, FileChange)
    ended = ended_item(item, output)
    assert ended == replace(
        item,
        status=ItemStatus.COMPLETED if done else ItemStatus.FAILED,
        stdout=printed,
        stderr="" if done else printed,
    )


IMAGE = {"type": "image", "data": "x", "mimeType": "image/png"}


@pytest.mark.parametrize(
    ("output", "content"),
    [
        ("plain", [{"type": "text", "text": "plain"}]),
        (json.dumps({"content": [IMAGE]}), [IMAGE]),
        (json.dumps([IMAGE]), [IMAGE]),
        (json.dumps({"content": 5}), [{"type": "text", "text": '{"content": 5}'}]),
        (json.dumps({"content": [5]}), [{"type": "text", "text": '{"content": [5]}'}]),
        ("[" * 100_000, [{"type": "text", "text": "[" * 100_000}]),
        ('"quoted"', [{"type": "text", "text": '"quoted"'}]),
    ],
)
def test_the_output_of_a_tool_of_an_mcp_server(output: Json, content: list[Json]) -> None:
    item = item_of_call(function("server__tool", {}), "/ws")
    assert isinstance(item, McpToolCall)
    ended = ended_item(item, output)
    assert isinstance(ended, McpToolCall)
    assert isinstance(ended.result, OkResult)
    assert ended.status is ItemStatus.COMPLETED
    found = ended.result.ok.to_value()["content"]
    assert [
        {key: part[key] for key in wanted} for part, wanted in zip(found, content, strict=True)
    ] == content


def test_a_tool_of_an_mcp_server_without_an_output_was_interrupted() -> None:
    item = item_of_call(function("mcp__server__tool__x", {"a": 1}), "/ws")
    assert isinstance(item, McpToolCall)
    assert (item.invocation.server, item.invocation.tool) == ("server", "tool__x")
    assert ended_item(item, None) == replace(
        item, status=ItemStatus.FAILED, result=ErrResult(err="interrupted")
    )


@pytest.mark.parametrize(
    ("output", "printed"),
    [
        ({"content": "text", "success": True}, "text"),
        ([{"type": "input_text", "text": "a"}, {"type": "input_image"}, 5, {"text": 6}], "a\n6"),
        ({"content": 5}, ""),
        (5, ""),
        ("Process exited with code 7\nOutput:\nx", "x"),
        ("said: Exit code: 7", "said: Exit code: 7"),
        (json.dumps({"output": "x"}), json.dumps({"output": "x"})),
        ("{" * 100_000, "{" * 100_000),
    ],
)
def test_every_form_of_output_is_read(output: Json, printed: str) -> None:
    item = item_of_call(function("shell", {"command": ["ls"]}), "/ws")
    assert item is not None
    ended = ended_item(item, output)
    assert isinstance(ended, CommandExecution)
    assert ended.output == printed
    assert ended.exit_code == (7 if "exited" in str(output) else None)


def test_what_has_no_output_of_its_own_ends_as_it_began() -> None:
    image = ImageView("c", "/a.png")
    assert ended_item(image, "x") is image


def test_calls_with_fields_in_another_form() -> None:
    search = {"type": "web_search_call"}
    assert item_of_call(search, "/ws") == WebSearch("search ", "")
    assert item_of_call({**search, "action": {"query": 5}}, "/ws") == WebSearch("search ", "")
    assert item_of_call({"type": "local_shell_call", "call_id": "c", "action": 5}, "/ws") is None
    assert item_of_call({"type": "custom_tool_call", "call_id": "c", "name": "apply_patch"}, "/ws") is None
    assert (
        item_of_call({"type": "custom_tool_call", "call_id": "c", "name": "x", "input": PATCH}, "/ws") is None
    )
    assert item_of_call(function("shell", {"command": ["ls"]}) | {"arguments": "\ud800"}, "/ws") is None
    assert item_of_call(function("shell", {"command": ["ls"]}) | {"call_id": ""}, "/ws") is None
    assert item_of_call(function("__x", {}), "/ws") is None
    command = item_of_call(
        {"type": "local_shell_call", "call_id": "c", "action": {"command": ["ls"]}}, "/ws/x/.."
    )
    assert isinstance(command, CommandExecution)
    assert command.cwd == "/ws"
    assert command.parsed == tuple(parse_command(["ls"]))


def test_a_patch_is_relative_to_the_folder_of_its_call() -> None:
    call = function("shell", {"command": ["apply_patch", PATCH], "workdir": "sub"})
    item = item_of_call(call, "/ws")
    assert isinstance(item, FileChange)
    assert list(item.changes) == ["/ws/sub/new", "/ws/sub/old"]
    script = function("shell", {"command": ["sh", "-c", f"cd deep && apply_patch <<'EOF'\n{PATCH}\nEOF"]})
    item = item_of_call(script, "/ws")
    assert isinstance(item, FileChange)
    assert list(item.changes) == ["/ws/deep/new", "/ws/deep/old"]
    delete = item_of_call(function("apply_patch", {"input": wrap("*** Delete File: /x")}), "/ws")
    assert isinstance(delete, FileChange)
    assert delete.changes == {"/x": DeleteFileChange(content="")}
