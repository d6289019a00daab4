"""Items of files that store calls only as entries of the history."""

import json
from pathlib import Path

import pytest

from app_server.engine.storage.rollout_reader import read_rollout
from app_server_protocol.encoding import Json
from app_server_protocol.engine.events import EndedItem
from app_server_protocol.engine.items import (
    AgentMessage,
    CommandExecution,
    ImageView,
    Item,
    ItemStatus,
    McpToolCall,
    Reasoning,
    UserMessage,
    WebSearch,
    item_to_value,
)
from app_server_protocol.engine.notices import PlanUpdated
from app_server_protocol.values import replace
from tests.engine.storage.stored import items_shown

ID = "01a1fc42-4317-7560-83f3-f16344e5fd73"
META: Json = {
    "id": ID,
    "timestamp": "t",
    "cwd": "/work",
    "originator": "test",
    "cli_version": "1",
    "model_provider": "mock",
}
CODEX = Path(__file__).parent.parent.parent / "data" / "codex-0.58-rollout.jsonl"


def stored(folder: Path, *payloads: Json) -> tuple[EndedItem, ...]:
    lines = [{"type": "session_meta", "payload": META}]
    lines += [{"type": "response_item", "payload": payload} for payload in payloads]
    path = folder / "rollout.jsonl"
    path.write_text(
        "".join(json.dumps({"timestamp": "t", **line}, separators=(",", ":")) + "\n" for line in lines)
    )
    found = items_shown(path, ID)
    whole = read_rollout(path, turns=True).turns
    assert whole is not None
    assert tuple(whole.items) == found
    return found


def plan_in(folder: Path, *payloads: Json) -> PlanUpdated | None:
    stored(folder, *payloads)
    whole = read_rollout(folder / "rollout.jsonl", turns=True).turns
    return None if whole is None else whole.plan


def call(name: str, arguments: Json, id: str = "c1") -> Json:
    return {"type": "function_call", "name": name, "arguments": json.dumps(arguments), "call_id": id}


def output(text: str, id: str = "c1") -> Json:
    return {"type": "function_call_output", "call_id": id, "output": text}


def test_a_file_of_codex_058_has_its_commands_in_their_places() -> None:
    items = [each.item for each in items_shown(CODEX, ID)]
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


def test_other_tools_searches_and_the_last_plan(tmp_path: Path) -> None:
    calls = (
        call("mcp__kit__echo", {"text": "hi"}),
        output('{"content":[{"type":"text","text":"hi"}]}'),
        {"type": "web_search_call", "action": {"type": "search", "query": "weather"}},
        call("update_plan", {"plan": [{"step": "old", "status": "pending"}]}, "c2"),
        call("update_plan", {"plan": [{"step": "new", "status": "completed"}]}, "c3"),
        call("read_file", {"path": "x"}, "c4"),
    )
    tool, search = (each.item for each in stored(tmp_path, *calls))
    assert isinstance(tool, McpToolCall)
    assert (tool.invocation.server, tool.invocation.tool, tool.status) == (
        "kit",
        "echo",
        ItemStatus.COMPLETED,
    )
    assert search == WebSearch("search weather", "weather")
    plan = plan_in(tmp_path, *calls)
    assert plan is not None
    assert [step.step for step in plan.plan] == ["new"]


def test_repeated_ids_are_distinguished(tmp_path: Path) -> None:
    found = stored(
        tmp_path, call("shell", {"command": ["ls"]}), output("x"), call("shell", {"command": ["pwd"]})
    )
    assert [each.item.id for each in found] == ["c1", "c1-2"]


@pytest.mark.parametrize(
    "payload", [{}, {"type": "function_call"}, call("shell", {"command": "ls"}), output("x", "no")]
)
def test_what_cannot_be_read_is_left_out(tmp_path: Path, payload: Json) -> None:
    assert stored(tmp_path, payload) == ()


# --- order, ids and duplicates
def turn_item(item: Item, **more: Json) -> Json:
    return {"type": "turn_item", "turn_id": "t", "item": item_to_value(item), **more}


def written(folder: Path, *lines: tuple[str, Json] | bytes) -> Path:
    """Write a rollout of lines by kind and payload; bytes are a line as it is."""
    path = folder / "rollout.jsonl"
    parts = [
        line
        if isinstance(line, bytes)
        else json.dumps(
            {"timestamp": "t", "type": line[0], "payload": line[1]}, separators=(",", ":")
        ).encode()
        for line in lines
    ]
    path.write_bytes(b"\n".join(parts) + b"\n")
    return path


BEGIN = ("event_msg", {"type": "task_started", "turn_id": "t"})


def items_in(folder: Path, *lines: tuple[str, Json] | bytes) -> list[Item]:
    return [each.item for each in items_shown(written(folder, *lines), ID)]


def printed(item: Item) -> str:
    assert isinstance(item, CommandExecution)
    return item.output


def test_calls_of_one_id_that_are_stored_as_items_too_are_those_items(tmp_path: Path) -> None:
    ls = ("response_item", call("shell", {"command": ["ls"]}))
    item = (
        "event_msg",
        turn_item(CommandExecution(id="c1", command=("ls",), cwd="/", parsed=(), output="kept")),
    )
    found = items_in(tmp_path, BEGIN, ls, item, ls, item, ls, ("response_item", output("third")))
    assert [each.id for each in found] == ["c1", "c1-2", "c1-3"]
    assert [printed(each) for each in found[:2]] == ["kept", "kept"]


def test_of_calls_with_one_id_only_those_without_an_item_are_read_of_the_history(tmp_path: Path) -> None:
    item = CommandExecution(id="c1", command=("pwd",), cwd="/", parsed=(), output="as an item")
    found = items_in(
        tmp_path,
        BEGIN,
        ("response_item", call("shell", {"command": ["ls"]})),
        ("response_item", output("one")),
        ("event_msg", turn_item(item)),
        ("response_item", call("shell", {"command": ["ls"]})),
        ("response_item", output("two")),
    )
    assert [(each.id, printed(each)) for each in found] == [("c1", "as an item"), ("c1-2", "two")]


def test_a_search_is_stored_without_its_id(tmp_path: Path) -> None:
    search = WebSearch("ws_1", "weather")
    history = {"type": "web_search_call", "action": {"type": "search", "query": "weather"}}
    other = {"type": "web_search_call", "action": {"type": "search", "query": "news"}}
    found = items_in(
        tmp_path,
        BEGIN,
        ("response_item", history),
        ("event_msg", turn_item(search)),
        ("response_item", other),
    )
    assert found == [search, WebSearch("search news", "news")]


def test_outputs_belong_to_the_calls_of_their_id_in_order(tmp_path: Path) -> None:
    custom = {"type": "custom_tool_call_output", "call_id": "c1", "output": "two"}
    found = stored(
        tmp_path,
        call("shell", {"command": ["a"]}),
        call("shell", {"command": ["b"]}),
        call("shell", {"command": ["c"]}),
        output("one"),
        custom,
        {**output("other"), "call_id": 5},
    )
    assert [printed(each.item) for each in found] == ["one", "two", ""]


def test_items_have_their_times_and_say_whether_they_were_cut(tmp_path: Path) -> None:
    image = ImageView("i", "/x.png")
    path = written(
        tmp_path,
        ("event_msg", turn_item(image, started_at_ms=3, completed_at_ms=4, cut=True)),
        ("event_msg", turn_item(image)),
        ("response_item", call("view_image", {"path": "/y.png"}, "v")),
    )
    assert items_shown(path, ID) == (
        EndedItem(image, 3, 4, cut=True),
        EndedItem(replace(image, id="i-2"), None, None),
        EndedItem(ImageView("v", "/y.png"), None, None, cut=True),
    )


def test_an_item_that_the_file_does_not_end_is_there(tmp_path: Path) -> None:
    thought = ("event_msg", {"type": "agent_reasoning", "text": "hm", "item_id": "r", "turn_id": "t"})
    assert items_in(tmp_path, thought) == [Reasoning("r", ("hm",))]


# --- the working directory
def test_a_command_ran_in_the_working_directory_of_its_turn(tmp_path: Path) -> None:
    def ls(id: str) -> tuple[str, Json]:
        return "response_item", call("shell", {"command": ["ls"]}, id)

    found = items_in(
        tmp_path,
        ls("before"),
        ("session_meta", {"id": ID, "cwd": "/work"}),
        ls("first"),
        ("turn_context", {"cwd": "/other"}),
        ls("second"),
        ("turn_context", {"cwd": "relative"}),
        ("turn_context", {"cwd": 5}),
        ("event_msg", {"type": "user_message", "message": "x", "cwd": "/no"}),
        ls("third"),
    )
    folders = [each.cwd for each in found if isinstance(each, CommandExecution)]
    assert folders == ["/", "/work", "/other", "/other"]


# --- lines in another form
def test_lines_of_other_programs_are_read(tmp_path: Path) -> None:
    def spaced(kind: str, payload: Json) -> bytes:
        return json.dumps({"timestamp": "t", "type": kind, "payload": payload}).encode()

    found = items_in(
        tmp_path,
        spaced("session_meta", {"id": ID, "cwd": "/work"}),
        b'{"torn',
        spaced("response_item", call("shell", {"command": ["ls"]})),
        spaced("response_item", output("Exit code: 0\nOutput:\nx\n")),
        spaced("event_msg", {"type": "agent_message", "message": "done"}),
        b"[]",
    )
    command, message = found
    assert isinstance(command, CommandExecution)
    assert (command.cwd, command.output, command.status) == ("/work", "x\n", ItemStatus.COMPLETED)
    assert isinstance(message, AgentMessage)
    assert message.text == "done"


def test_lines_that_were_taken_back_are_no_items(tmp_path: Path) -> None:
    found = items_in(
        tmp_path,
        ("session_meta", {"id": ID, "cwd": "/work"}),
        ("response_item", call("shell", {"command": ["ls"]})),
        ("event_msg", {"type": "thread_rolled_back", "num_turns": 1, "kept_lines": 1}),
        ("response_item", call("shell", {"command": ["pwd"]})),
    )
    assert [each.command for each in found if isinstance(each, CommandExecution)] == [("pwd",)]


# --- the last plan and the last count of tokens
@pytest.mark.parametrize("arguments", ["", "{", "[]", '{"plan":5}', '{"plan":[{"step":"x"}]}', "\ud800", 5])
def test_what_is_no_plan_is_none(tmp_path: Path, arguments: Json) -> None:
    plan = {"type": "function_call", "name": "update_plan", "arguments": arguments, "call_id": "c1"}
    found = stored(tmp_path, plan, output("Plan updated"))
    assert found == ()
    assert plan_in(tmp_path, plan, output("Plan updated")) is None


def test_the_last_count_of_tokens_counts(tmp_path: Path) -> None:
    def count(total: int) -> Json:
        usage = {"total_tokens": total}
        return {"type": "token_count", "info": {"total_token_usage": usage, "last_token_usage": usage}}

    def usage(*payloads: Json) -> int | None:
        path = written(tmp_path, ("session_meta", META), *(("event_msg", payload) for payload in payloads))
        found = read_rollout(path).usage
        return None if found is None else found.total_token_usage.total_tokens

    assert usage() is None
    assert usage(count(1), count(2)) == 2
    assert usage(count(1), {"type": "token_count", "info": None}) == 1
    assert usage({"type": "token_count", "info": {"total_token_usage": 5}}) is None
    assert usage({"type": "token_count"}) is None
