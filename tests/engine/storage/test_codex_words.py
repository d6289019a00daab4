"""Newer spellings of stored lines of codex: goals, the tools of a client, the names of grouped tools (as 0.171 wrote
them), and turns that were reverted by their number, as in versions up to 0.158.
"""

import json
import shutil
from pathlib import Path

import pytest

from app_server.engine.storage.codex_compat import goal_in, meta_in_our_words
from app_server.engine.storage.line_reader import last_goal, last_turn_context
from app_server.engine.storage.pagination import PageRequest
from app_server.engine.storage.rollout_reader import read_rollout
from app_server.engine.storage.stored_item_lines import item_of_line
from app_server.engine.storage.thread_summary import read_message_text
from app_server.engine.storage.turn_index import TurnIndexes
from app_server.engine.storage.turn_pages import open_history
from app_server_protocol.encoding import Json
from app_server_protocol.engine.events import Goal, GoalStatus
from app_server_protocol.engine.items import AgentMessage, Item, McpToolCall, UserMessage
from app_server_protocol.engine.questions import ClientTool
from app_server_protocol.responses import FunctionCall, MessageItem
from tests.engine.storage.stored import conversation_id, items_shown, raw_line

ID = conversation_id(1)
META: Json = {
    "id": ID,
    "timestamp": "2026-01-02T03:04:05.678Z",
    "cwd": "/work",
    "originator": "test",
    "cli_version": "0.171.0",
    "source": "vscode",
    "model_provider": "mock",
}
GOAL = {
    "threadId": ID,
    "objective": "win it",
    "tokenBudget": 1000,
    "tokensUsed": 5,
    "timeUsedSeconds": 2,
    "createdAt": 1795884696,
    "updatedAt": 1795884697,
}
SCHEMA = {"type": "object", "properties": {"q": {"type": "string"}}}
OLDER = Path(__file__).parents[2] / "data" / "codex-0.171"


def file_of(folder: Path, *lines: tuple[str, Json]) -> Path:
    path = folder / f"rollout-2026-11-28T16-00-00-{ID}.jsonl"
    path.write_bytes(b"".join(raw_line(kind, payload) for kind, payload in lines))
    return path


def turns_in(path: Path, indexes: TurnIndexes | None = None) -> list[list[str]]:
    with open_history(path, ID, indexes or TurnIndexes()) as history:
        paged = history.turns(PageRequest(newest_first=False, limit=100)).rows
        assert history.whole().turns == paged
    stored = read_rollout(path, turns=True)
    assert stored.turns is not None
    assert stored.turns.turns == paged
    return [[words_of(each.item) for each in turn.items] for turn in paged]


def words_of(item: Item) -> str:
    parts = item.content if isinstance(item, UserMessage | AgentMessage) else ()
    return "".join(part if isinstance(part, str) else getattr(part, "text", "") for part in parts)


def told_in(path: Path) -> list[str]:
    messages = (item for item in read_rollout(path).items if isinstance(item, MessageItem))
    return ["".join(getattr(part, "text", "") for part in message.content) for message in messages]


# --- goals
@pytest.mark.parametrize(
    ("stored", "status"),
    [
        ("active", GoalStatus.PAUSED),
        ("paused", GoalStatus.PAUSED),
        ("budgetLimited", GoalStatus.BUDGET_LIMITED),
        ("complete", GoalStatus.COMPLETE),
        ("of the future", GoalStatus.PAUSED),
    ],
)
def test_a_goal_is_taken_over_and_waits_for_the_user(tmp_path: Path, stored: str, status: GoalStatus) -> None:
    goal = {"type": "thread_goal_updated", "threadId": ID, "goal": {**GOAL, "status": stored}}
    path = file_of(tmp_path, ("session_meta", META), ("event_msg", goal))
    expected = Goal(
        objective="win it",
        status=status,
        token_budget=1000,
        tokens_used=5,
        seconds_used=2.0,
        created_at=1795884696,
        updated_at=1795884697,
    )
    assert read_rollout(path).goal == last_goal(path) == expected


def test_a_goal_that_was_cleared_or_is_damaged_is_none(tmp_path: Path) -> None:
    goal = {"type": "thread_goal_updated", "goal": GOAL}
    lines = ("session_meta", META), ("event_msg", goal), ("event_msg", {"type": "thread_goal_cleared"})
    path = file_of(tmp_path, *lines)
    assert read_rollout(path).goal is None
    assert last_goal(path) is None
    assert goal_in({"type": "thread_goal_updated", "goal": {"objective": 5}}) is None


# --- tools
def test_the_tools_of_the_client_are_taken_over(tmp_path: Path) -> None:
    function = {"type": "function", "name": "lookup", "description": "looks", "inputSchema": SCHEMA}
    find = {"type": "function", "name": "find", "description": "finds", "inputSchema": SCHEMA}
    group = {"type": "namespace", "name": "crm", "description": "the crm", "tools": [find, 5]}
    first = {**META, "dynamic_tools": [function, group, {"name": 5}, "x"]}
    stored = read_rollout(file_of(tmp_path, ("session_meta", first)))
    assert stored.meta.client_tools == (
        ClientTool(name="lookup", description="looks", input_schema=SCHEMA),
        ClientTool(name="find", namespace="crm", description="finds", input_schema=SCHEMA),
    )
    ours = {"client_tools": [], "dynamic_tools": [function]}
    assert meta_in_our_words(ours) == ours


def test_a_call_of_a_grouped_tool_has_the_name_that_the_model_is_offered(tmp_path: Path) -> None:
    def call(id: str, **names: str) -> tuple[str, Json]:
        value = {"type": "function_call", "arguments": '{"namespace":"x"}', "call_id": id, **names}
        return "response_item", value

    calls = call("c1", name="echo", namespace="mcp__kit"), call("c2", name="shell")
    path = file_of(tmp_path, ("session_meta", META), *calls)
    found = [item.name for item in read_rollout(path).items if isinstance(item, FunctionCall)]
    assert found == ["mcp__kit__echo", "shell"]
    (ended,) = items_shown(path, ID)
    assert isinstance(ended.item, McpToolCall)
    assert (ended.item.invocation.server, ended.item.invocation.tool) == ("kit", "echo")


# --- settings
CONTEXT = {
    "turn_id": "t1",
    "cwd": "/work",
    "approval_policy": "never",
    "model": "m",
    "summary": "none",
    "sandbox_policy": {"type": "danger-full-access"},
}
MANAGED = {"type": "managed", "file_system": {"type": "restricted", "entries": []}, "network": "enabled"}


@pytest.mark.parametrize(
    ("profile", "active", "id"),
    [
        (MANAGED, {"id": ":workspace", "modifications": []}, ":workspace"),
        (MANAGED, {"id": "mine", "extends": ":read-only", "of the future": 5}, "mine"),
        ({"type": "disabled"}, None, None),
        ({"type": "external", "network": "restricted"}, {"id": 5}, None),
        ("of an earlier version", None, "of an earlier version"),
    ],
)
def test_a_profile_is_named_by_its_id_whatever_form_it_has(
    tmp_path: Path, profile: Json, active: Json, id: str | None
) -> None:
    context = {**CONTEXT, "permission_profile": profile, "active_permission_profile": active}
    last = last_turn_context(file_of(tmp_path, ("session_meta", META), ("turn_context", context)))
    assert last is not None
    assert (last.model, last.profile_id) == ("m", id)


# --- turns that were reverted by their number
def message(role: str, text: str) -> tuple[str, Json]:
    kind = "input_text" if role == "user" else "output_text"
    return "response_item", {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


def reverted_lines(turns: int) -> tuple[str, Json]:
    return "event_msg", {"type": "thread_rolled_back", "num_turns": turns}


def spoken(words: str) -> list[tuple[str, Json]]:
    """Return a turn as codex 0.58 stores it."""
    return [
        message("user", words),
        ("event_msg", {"type": "user_message", "message": words}),
        ("event_msg", {"type": "agent_message", "message": words.upper()}),
        message("assistant", words.upper()),
    ]


@pytest.mark.parametrize(
    ("lines", "left"),
    [
        ([*spoken("a"), *spoken("b"), *spoken("c"), reverted_lines(1)], ["a", "b"]),
        (
            [*spoken("a"), *spoken("b"), reverted_lines(1), *spoken("c"), reverted_lines(1), *spoken("d")],
            ["a", "d"],
        ),
        (
            [*spoken("a"), *spoken("b"), reverted_lines(1), *spoken("c"), reverted_lines(2), *spoken("d")],
            ["d"],
        ),
        ([*spoken("a"), reverted_lines(5), *spoken("b")], ["b"]),
        ([reverted_lines(1), *spoken("a")], ["a"]),
        ([*spoken("a"), reverted_lines(0), reverted_lines(-1)], ["a"]),
    ],
)
def test_turns_that_are_taken_back_by_their_number_do_not_count(
    tmp_path: Path, lines: list[tuple[str, Json]], left: list[str]
) -> None:
    path = file_of(tmp_path, ("session_meta", META), *lines)
    assert turns_in(path) == [[word, word.upper()] for word in left]
    assert told_in(path) == [text for word in left for text in (word, word.upper())]
    assert read_message_text(path).split() == [text for word in left for text in (word, word.upper())]


def test_a_copy_of_the_lines_before_has_what_was_taken_back_behind_them(tmp_path: Path) -> None:
    path = file_of(tmp_path, ("session_meta", META), *spoken("a"), *spoken("b"), reverted_lines(1))
    assert len(read_rollout(path, keeps=9).items) == 4
    assert len(read_rollout(path).items) == 2


def test_an_index_that_is_kept_learns_of_turns_that_are_taken_back(tmp_path: Path) -> None:
    path, indexes = file_of(tmp_path, ("session_meta", META), *spoken("a"), *spoken("b")), TurnIndexes()
    assert turns_in(path, indexes) == [["a", "A"], ["b", "B"]]
    with path.open("ab") as file:
        file.writelines(raw_line(kind, payload) for kind, payload in [reverted_lines(1), *spoken("c")])
    assert turns_in(path, indexes) == [["a", "A"], ["c", "C"]]


def test_turns_of_a_file_with_identity_are_taken_back_with_the_compactions_between_them(
    tmp_path: Path,
) -> None:
    (source,) = OLDER.glob("*15-35-58*")
    path = Path(shutil.copy(source, tmp_path))
    id = path.stem[28:]
    rolled = json.dumps({"timestamp": "", "type": "event_msg", "payload": dict(reverted_lines(2)[1])})
    with path.open("a") as file:
        file.write(rolled + "\n")
    with open_history(path, id, TurnIndexes()) as history:
        assert history.whole().turns == ()
    assert [type(item).__name__ for item in read_rollout(path).items] == []


# --- messages
@pytest.mark.parametrize(
    "item",
    [
        {"type": "UserMessage", "content": [{"type": "text", "text": "a", "text_elements": []}]},
        {"type": "UserMessage", "client_id": "c", "content": [{"type": "text", "text": "a"}]},
        {"type": "UserMessage", "client_id": 5, "content": [{"type": "text", "text": "a"}]},
        {"type": "UserMessage", "content": [{"type": "text", "text": "a", "text_elements": [{"x": 1}]}]},
        {"type": "UserMessage", "content": [{"type": "image", "image_url": "data:,"}]},
        {"type": "AgentMessage", "content": [{"type": "Text", "text": "a"}], "phase": "commentary"},
        {"type": "AgentMessage", "content": [{"type": "Text", "text": "a"}], "phase": 5},
        {"type": "AgentMessage", "content": [{"type": "Text", "text": 5}]},
    ],
)
def test_a_message_of_one_text_is_read_as_its_model_reads_it(item: Json) -> None:
    payload = {"type": "item_completed", "item": {"id": "i", **item}}
    assert item_of_line("item_completed", payload) == item_of_line("item_completed", {**payload, "kept": {}})
