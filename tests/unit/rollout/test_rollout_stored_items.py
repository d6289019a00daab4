"""Items of files that store calls as entries of the history only."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app_server.core.rollout.stored_items import StoredItems, read_stored_items
from protocol.base import Json
from protocol.engine.items import (
    AgentMessage,
    CommandExecution,
    FileChange,
    ItemStatus,
    McpToolCall,
    Reasoning,
    UserMessage,
    WebSearch,
)
from protocol.events.patches import AddFileChange, UpdateFileChange

ID = "01a1fc42-4317-7560-83f3-f16344e5fd73"
CODEX = Path(__file__).parent.parent.parent / "data" / "codex-0.58-rollout.jsonl"


def stored(folder: Path, *payloads: Json) -> StoredItems:
    lines = [{"type": "session_meta", "payload": {"id": ID, "cwd": "/work"}}]
    lines += [{"type": "response_item", "payload": payload} for payload in payloads]
    path = folder / "rollout.jsonl"
    path.write_text(
        "".join(json.dumps({"timestamp": "t", **line}, separators=(",", ":")) + "\n" for line in lines)
    )
    return read_stored_items(path, ID)


def call(name: str, arguments: Json, id: str = "c1") -> Json:
    return {"type": "function_call", "name": name, "arguments": json.dumps(arguments), "call_id": id}


def output(text: str, id: str = "c1") -> Json:
    return {"type": "function_call_output", "call_id": id, "output": text}


def test_a_file_of_codex_058_has_its_commands_in_their_places() -> None:
    items = [each.item for each in read_stored_items(CODEX, ID).items]
    assert [type(item) for item in items] == [
        UserMessage,
        Reasoning,
        AgentMessage,
        CommandExecution,
        AgentMessage,
        UserMessage,
        AgentMessage,
    ]
    command = items[3]
    assert isinstance(command, CommandExecution)
    assert (command.command, command.cwd) == (("sh", "-c", "echo from-codex"), "/home/me/project")
    assert (command.output, command.exit_code, command.status) == ("from-codex\n", 0, ItemStatus.COMPLETED)


@pytest.mark.parametrize(
    ("text", "code", "printed"),
    [
        ('{"output":"x","metadata":{"exit_code":3,"duration_seconds":0.1}}', 3, "x"),
        ("Exit code: 2\nWall time: 0.1 seconds\nOutput:\nx\n", 2, "x\n"),
        ("exec command rejected by user", None, "exec command rejected by user"),
    ],
)
def test_exit_codes_are_read_of_each_form_of_output(
    tmp_path: Path, text: str, code: int | None, printed: str
) -> None:
    (ended,) = stored(tmp_path, call("shell", {"command": ["ls"], "workdir": "sub"}), output(text)).items
    command = ended.item
    assert isinstance(command, CommandExecution)
    assert (command.exit_code, command.output, command.cwd) == (code, printed, "/work/sub")
    assert command.status is ItemStatus.FAILED


def test_a_call_without_an_output_has_failed(tmp_path: Path) -> None:
    (ended,) = stored(tmp_path, call("shell", {"command": ["ls"]})).items
    assert isinstance(ended.item, CommandExecution)
    assert ended.item.status is ItemStatus.FAILED


@pytest.mark.parametrize("form", ["tool", "custom", "command"])
def test_patches_are_read_of_their_text(tmp_path: Path, form: str) -> None:
    add, update = "*** Add File: new.txt\n+one\n", "*** Update File: /else/old.txt\n@@\n keep\n-a\n+b\n"
    text = f"*** Begin Patch\n{add}{update}*** End Patch"
    forms: dict[str, Json] = {
        "tool": call("apply_patch", {"input": text}),
        "custom": {"type": "custom_tool_call", "name": "apply_patch", "input": text, "call_id": "c1"},
        "command": call("shell", {"command": ["apply_patch", text]}),
    }
    result = output('{"output":"Success.","metadata":{"exit_code":0,"duration_seconds":0.1}}')
    (ended,) = stored(tmp_path, forms[form], result).items
    change = ended.item
    assert isinstance(change, FileChange)
    assert change.status is ItemStatus.COMPLETED
    assert change.changes == {
        "/work/new.txt": AddFileChange(content="one\n"),
        "/else/old.txt": UpdateFileChange(unified_diff="@@\n keep\n-a\n+b\n"),
    }


def test_other_tools_searches_and_the_last_plan(tmp_path: Path) -> None:
    found = stored(
        tmp_path,
        call("mcp__kit__echo", {"text": "hi"}),
        output('{"content":[{"type":"text","text":"hi"}]}'),
        {"type": "web_search_call", "action": {"type": "search", "query": "weather"}},
        call("update_plan", {"plan": [{"step": "old", "status": "pending"}]}, "c2"),
        call("update_plan", {"plan": [{"step": "new", "status": "completed"}]}, "c3"),
        call("read_file", {"path": "x"}, "c4"),
    )
    tool, search = (each.item for each in found.items)
    assert isinstance(tool, McpToolCall)
    assert (tool.invocation.server, tool.invocation.tool, tool.status) == (
        "kit",
        "echo",
        ItemStatus.COMPLETED,
    )
    assert search == WebSearch("search weather", "weather")
    assert found.plan is not None
    assert [step.step for step in found.plan.plan] == ["new"]


def test_repeated_ids_are_distinguished(tmp_path: Path) -> None:
    found = stored(
        tmp_path, call("shell", {"command": ["ls"]}), output("x"), call("shell", {"command": ["pwd"]})
    )
    assert [each.item.id for each in found.items] == ["c1", "c1-2"]


@pytest.mark.parametrize(
    "payload", [{}, {"type": "function_call"}, call("shell", {"command": "ls"}), output("x", "no")]
)
def test_what_cannot_be_read_is_left_out(tmp_path: Path, payload: Json) -> None:
    assert stored(tmp_path, payload).items == ()
