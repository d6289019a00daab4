"""The texts in which codex tells its model of its own tools are not read as a part of a conversation."""

import json
from collections.abc import Sequence
from itertools import count
from pathlib import Path

import pytest

from app_server.engine.storage.codex_preamble import HEADS, without_openings
from app_server.engine.storage.rollout_reader import read_rollout, rebuild_history
from app_server_protocol.encoding import Json
from app_server_protocol.responses import InputText, MessageItem, ResponseItem
from app_server_protocol.rollout import CompactedItem
from tests.engine.storage.stored import assistant, conversation_id, meta, raw_line, texts, user

BASE = "You are Codex."
OF_CODEX = meta(base_instructions={"text": BASE})
OTHER = meta()
ENVIRONMENT = user("<environment_context>\n</environment_context>")


def developer(*parts: str) -> MessageItem:
    return MessageItem(role="developer", content=tuple(InputText(text=each) for each in parts))


def kept(*items: ResponseItem, of_codex: bool = True) -> list[str]:
    return texts(list(without_openings(items, OF_CODEX if of_codex else OTHER)))


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("of_codex", [True, False])
def test_messages_before_the_users_first_words_are_dropped(head: str, of_codex: bool) -> None:
    begin = [developer(f"{head}\ntools"), ENVIRONMENT, developer(f"{head}\nmore")]
    said = [user("hi"), assistant("hello")]
    assert kept(*begin, *said, of_codex=of_codex) == [*texts([ENVIRONMENT]), "hi", "hello"]


def test_developer_instructions_of_the_user_stay_also_in_the_same_message() -> None:
    mixed = developer("<skills_instructions>\nx", "Be brief.", "<collaboration_mode># Default")
    assert kept(developer(BASE), developer("Use tabs."), mixed, user("hi")) == [
        "Use tabs.",
        "Be brief.",
        "hi",
    ]


def test_a_file_of_codex_has_them_behind_the_first_words_too() -> None:
    later = developer("<collaboration_mode># Plan Mode")
    assert kept(user("hi"), later, user("on")) == ["hi", "on"]
    assert kept(user("hi"), later, user("on"), of_codex=False) == ["hi", *texts([later]), "on"]
    assert kept(developer(BASE), user("hi"), of_codex=False) == [BASE, "hi"]


def test_a_history_that_a_compaction_left_is_read_so_too() -> None:
    items = user("one"), developer("<permissions instructions>\nx"), ENVIRONMENT, user("two"), user("SUMMARY")
    line = CompactedItem(message="SUMMARY", replacement_history=items)
    [read] = without_openings([line], OF_CODEX)
    assert isinstance(read, CompactedItem)
    assert texts(read.replacement_history or ()) == ["one", *texts([ENVIRONMENT]), "two", "SUMMARY"]
    plain = CompactedItem(message="SUMMARY")
    assert list(without_openings([plain], OF_CODEX)) == [plain]


def payload(role: str, *parts: str) -> Json:
    content = [{"type": "input_text", "text": part} for part in parts]
    return {"type": "message", "role": role, "content": content}


def lines_of_codex(id: str, tools: Sequence[str] = ("exec", "wait")) -> list[bytes]:
    """Return the lines of a thread that codex 0.171 stored with one of its newest models."""
    at, call_ids = "2026-11-28T15:24:46.086Z", count(1)
    facts = {"id": id, "session_id": id, "timestamp": at, "cwd": "/work", "cli_version": "0.171.0"}
    of_codex = {"originator": "codex_exec", "source": "exec", "model_provider": "scripted"}
    found = [("session_meta", {**facts, **of_codex, "base_instructions": {"text": BASE}})]
    offer = {"type": "namespace", "name": "functions", "tools": [{"type": "custom", "name": "exec"}]}
    items: list[Json] = [
        {"type": "additional_tools", "id": "at_1", "role": "developer", "tools": [offer]},
        payload("developer", BASE),
        payload("developer", "<skills_instructions>\ns", "<permissions instructions>\np", "Be brief."),
        payload("developer", "<multi_agent_role>You are `/root`"),
        payload("user", "<environment_context>\n</environment_context>"),
        payload("user", "first words"),
    ]
    for name in tools:
        id = f"call_{next(call_ids)}"
        items.append({"type": "custom_tool_call", "call_id": id, "name": name, "input": "text('hi')"})
        items.append({"type": "custom_tool_call_output", "call_id": id, "output": "hi"})
    return [raw_line(kind, value) for kind, value in (*found, *(("response_item", each) for each in items))]


def test_a_thread_of_the_newest_codex_has_the_words_and_calls_alone(tmp_path: Path) -> None:
    id = conversation_id(1)
    path = tmp_path / f"rollout-2026-11-28T15-24-46-{id}.jsonl"
    path.write_bytes(b"".join(lines_of_codex(id)))
    history = rebuild_history(read_rollout(path).items, lambda before, line: before)
    assert texts(history) == ["Be brief.", "<environment_context>\n</environment_context>", "first words"]
    assert [item.type for item in history].count("custom_tool_call") == 2
    assert "tools" not in json.dumps([item.to_value() for item in history])
