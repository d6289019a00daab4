"""Messages and settings that are read without models are those that the models read."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app_server.core.rollout.last_settings import last_turn_context
from app_server.core.rollout.plain_messages import NotPlain, plain_messages
from app_server.core.rollout.plain_settings import PlainSettings, plain_last_settings
from app_server.core.rollout.reader import read_rollout
from app_server.core.rollout.rollout_errors import RolloutUnreadable
from protocol.base import Json
from protocol.rollout import TurnContextItem

THREAD = "01a1fc2e-450f-7ed0-9b52-64722a96c4dc"
META: Json = {
    "id": THREAD,
    "timestamp": "2026-01-01T00:00:00.000Z",
    "cwd": "/",
    "originator": "o",
    "cli_version": "0.58.0",
}

texts: st.SearchStrategy[Json] = st.sampled_from(["", "x", "ü\u2028\0", "\ud83d", 5, None, ["x"]])
numbers: st.SearchStrategy[Json] = st.sampled_from(
    [0, 7, -1, 2.0, 2.5, "7", True, None, 10**30, float("nan")]
)
images: st.SearchStrategy[Json] = st.sampled_from([None, [], ["data:x"], ["data:x", 5], "x"])


def fields(**optional: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
    return st.fixed_dictionaries({}, optional=optional)


usage: st.SearchStrategy[Json] = st.sampled_from([None, {}, "x"]) | fields(
    input_tokens=numbers, cached_input_tokens=numbers, total_tokens=numbers, other=numbers
)
infos: st.SearchStrategy[Json] = st.sampled_from([None, {}, []]) | fields(
    total_token_usage=usage, last_token_usage=usage, model_context_window=numbers
)
windows: st.SearchStrategy[Json] = st.sampled_from([None, {}]) | fields(
    used_percent=numbers, window_minutes=numbers, resets_at=numbers
)
limits: st.SearchStrategy[Json] = st.sampled_from([None, {}]) | fields(primary=windows, secondary=windows)


def event(kind: str, **optional: st.SearchStrategy[Json]) -> st.SearchStrategy[tuple[str, Json]]:
    payloads = st.fixed_dictionaries({"type": st.just(kind)}, optional=optional)
    return payloads.map(lambda payload: ("event_msg", payload))


records: st.SearchStrategy[tuple[str, Json]] = st.one_of(
    event("user_message", message=texts, images=images, other=texts),
    event("agent_message", message=texts, item_id=texts),
    event("agent_reasoning", text=texts),
    event("agent_reasoning_raw_content", text=texts),
    event("token_count", info=infos, rate_limits=limits),
    event("turn_aborted", reason=st.sampled_from(["interrupted", "replaced", "review_ended", "x", None])),
    event("turn_item", item=st.none()),
    event("undo_completed", success=st.booleans()),
    event("thread_rolled_back", kept_lines=numbers),
    st.just(("response_item", {"type": "message", "role": "user", "content": []})),
    st.just(("turn_context", {})),
    st.just(("compacted", {"message": "x"})),
    st.just(("session_meta", META)),
)
metas: st.SearchStrategy[Json] = st.one_of(
    st.just(META),
    st.just({**META, "instructions": "x", "source": "cli", "model_provider": "p", "git": {"branch": "b"}}),
    st.builds(
        lambda name, value: {**META, name: value},
        st.sampled_from([*META, "instructions", "source", "git", "client_tools", "forked_from_id"]),
        st.sampled_from([None, 5, "x", {}, {"branch": 5}, []]),
    ),
)


def line(kind: str, payload: Json) -> bytes:
    record = {"timestamp": "2026-01-01T00:00:00.000Z", "type": kind, "payload": payload}
    return json.dumps(record, separators=(",", ":")).encode() + b"\n"


def both(content: bytes) -> tuple[Json, Json]:
    """Id and messages, without models if they are plain, and with models if the file can be read."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"rollout-2026-01-01T00-00-00-{THREAD}.jsonl")
        path.write_bytes(content)
        found = plain_messages(path)
        plain = found and (found.conversation_id, list(found.messages))
        try:
            stored = read_rollout(path)
        except RolloutUnreadable:
            return plain, None
    modelled = [message.to_value() for message in stored.initial_messages]
    return plain, (stored.meta.id, modelled)


@given(metas, st.lists(records, max_size=6))
@settings(max_examples=400)
def test_messages_are_those_of_the_models(meta: Json, lines: list[tuple[str, Json]]) -> None:
    plain, modelled = both(line("session_meta", meta) + b"".join(line(*each) for each in lines))
    if plain is not None and "\\ud83d" not in json.dumps(plain):  # which no answer can carry
        assert plain == modelled
        assert json.dumps(plain) == json.dumps(modelled)  # also in the order of the fields


@given(st.lists(records, max_size=3), st.data())
def test_damaged_files_are_read_alike_or_left_to_the_models(
    lines: list[tuple[str, Json]], data: st.DataObject
) -> None:
    content = line("session_meta", META) + b"".join(line(*each) for each in lines)
    at, length = data.draw(st.integers(0, len(content))), data.draw(st.integers(0, 40))
    plain, modelled = both(content[:at] + content[at + length :])
    if plain is not None and "\\ud83d" not in json.dumps(plain):
        assert plain == modelled


def test_a_conversation_is_plain() -> None:
    counts = {"input_tokens": 5, "total_tokens": 5}
    lines: list[tuple[str, Json]] = [
        ("event_msg", {"type": "user_message", "message": "one", "images": [], "item_id": "u"}),
        ("response_item", {"type": "message", "role": "user", "content": []}),
        ("turn_context", {"cwd": "/"}),
        (
            "event_msg",
            {
                "type": "token_count",
                "info": {"total_token_usage": counts, "last_token_usage": counts},
                "rate_limits": {"primary": {"used_percent": 5}, "credits": None},
            },
        ),
        ("event_msg", {"type": "turn_item", "item": {"kind": "Plan"}}),
        ("event_msg", {"type": "turn_aborted", "reason": "interrupted"}),
    ]
    plain, modelled = both(line("session_meta", META) + b"".join(line(*each) for each in lines))
    assert plain is not None
    assert plain == modelled
    assert [message["type"] for message in plain[1]] == ["user_message", "token_count", "turn_aborted"]


@pytest.mark.parametrize("kind", ["undo_completed", "entered_review_mode", "thread_rolled_back"])
def test_rare_events_are_left_to_the_models(kind: str) -> None:
    plain, _ = both(line("session_meta", META) + line("event_msg", {"type": kind}))
    assert plain is None


policies: st.SearchStrategy[Json] = st.one_of(
    st.sampled_from([None, {}, {"mode": "x"}, {"mode": "danger-full-access"}, {"mode": "read-only"}]),
    st.fixed_dictionaries(
        {"mode": st.just("workspace-write")},
        optional={
            "writable_roots": st.sampled_from([[], ["/a"], [5], None]),
            "network_access": st.sampled_from([True, False, "yes", None]),
            "exclude_slash_tmp": st.booleans(),
        },
    ),
)
contexts = fields(
    cwd=st.sampled_from(["/", 5]),
    approval_policy=st.sampled_from(["never", "on-request", "on-failure", "untrusted", "x"]),
    sandbox_policy=policies,
    model=texts,
    effort=st.sampled_from([None, "low", "x", 5]),
    further_effort=st.sampled_from([None, "max"]),
    summary=st.just("auto"),
    mode=st.just("plan"),
)
SOUND: Json = {
    "cwd": "/",
    "approval_policy": "never",
    "sandbox_policy": {"mode": "read-only"},
    "model": "m",
    "summary": "auto",
}


@given(contexts | contexts.map(lambda some: {**SOUND, **some}))
@settings(max_examples=300)
def test_settings_are_those_of_the_models(context: Json) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "rollout.jsonl")
        path.write_bytes(line("session_meta", META) + line("turn_context", context) + line("event_msg", {}))
        try:
            plain = plain_last_settings(path)
        except NotPlain:
            return
        modelled = last_turn_context(path)
    assert plain is not None
    assert modelled is not None
    assert compared(plain) == compared(modelled)


def compared(last: PlainSettings | TurnContextItem) -> Json:
    return (
        *(last.cwd, last.approval_policy, last.granular, last.sandbox_policy, last.permission_profile),
        *(last.model, last.chosen_effort, last.mode, last.mode_instructions),
    )


def test_a_thread_without_a_turn_has_no_last_settings(tmp_path: Path) -> None:
    path = tmp_path / "rollout.jsonl"
    path.write_bytes(line("session_meta", META))
    assert plain_last_settings(path) is None
    path.write_bytes(line("turn_context", SOUND))
    assert plain_last_settings(path) is not None
