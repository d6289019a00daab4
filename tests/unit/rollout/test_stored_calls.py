"""Calls of the model in rollouts of other programs, as items with their ends."""

from __future__ import annotations

import json

import pytest

from app_server.core.rollout.stored_calls import ended_item, item_of_call
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
