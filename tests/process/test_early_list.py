"""What is answered before the engine is loaded is what the engine would have answered."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from app_server.core.rollout.thread_notes import ThreadNotes
from app_server.startup.early_list import early_list
from app_server.startup.early_threads import EarlyThreads
from protocol.base import Json
from protocol.jsonrpc import Request
from tests.support.world import PATH, SCRIPT

GREETING = {"id": 1, "method": "initialize", "params": {"clientInfo": {"name": "t", "version": "1"}}}
READY = {"method": "initialized"}
META = {"cwd": "/w", "originator": "t", "cli_version": "0.58.0", "instructions": None}

SLOW = ("-c", "hide_agent_reasoning=false")
"""An override of anything makes the engine answer."""


def rollout(home: Path, n: int, *, text: str = "hello", **meta: Json) -> None:
    uid = f"0199f0a0-0000-7000-8000-{n:012d}"
    day = home / "sessions" / "2025" / "10" / "20"
    day.mkdir(parents=True, exist_ok=True)
    stamp = "2025-10-20T10:00:00.000Z"

    def line(kind: str, payload: Json) -> str:
        return json.dumps({"timestamp": stamp, "type": kind, "payload": payload}) + "\n"

    said = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
    (day / f"rollout-2025-10-20T10-00-{n:02d}-{uid}.jsonl").write_text(
        line("session_meta", {"id": uid, "timestamp": stamp, **META, **meta})
        + line("response_item", said)
        + line("event_msg", {"type": "user_message", "message": text, "images": []})
    )


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "config.toml").write_text(
        'model_provider = "mock"\n[model_providers.mock]\nname = "Mock"\nbase_url = "http://127.0.0.1:9/v1"\n'
    )
    git = {"commit_hash": "c0ffee", "branch": "main", "repository_url": "https://example.com/x.git"}
    rollout(tmp_path, 1, source="cli", model_provider="mock", git=git)
    rollout(tmp_path, 2, source="vscode", text='grüße "😀"\n## My request for Codex:\n do it ')
    rollout(tmp_path, 3, source="exec", model_provider="mock")
    rollout(tmp_path, 4, source={"subagent": "review"}, model_provider="mock")
    rollout(tmp_path, 5, source="cli", model_provider="other", git={"branch": "side"})
    return tmp_path


def served(home: Path, messages: Sequence[Json], *arguments: str) -> list[Json]:
    """The answers to all messages, sent at once."""
    env = {"PATH": PATH, "HOME": str(home), "CODEX_HOME": str(home)}
    process = subprocess.Popen([SCRIPT, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env)
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        process.stdin.write(b"".join(json.dumps(message).encode() + b"\n" for message in messages))
        process.stdin.flush()
        answers = [json.loads(process.stdout.readline()) for message in messages if "id" in message]
        process.stdin.close()
        assert process.wait(60) == 0
        assert all("method" in json.loads(line) for line in process.stdout)
    return answers


def ask(**params: Json) -> Json:
    return {"id": 2, "method": "listConversations", "params": params}


def assert_answered_alike(home: Path, plain: Sequence[Json], other: Sequence[Json]) -> None:
    """Whether a request is answered early or by the engine, its answer is the same. What is answered early comes first:
    what follows a request for the engine may wait for it.
    """
    requests = [{**request, "id": id} for id, request in enumerate((*plain, *other), start=2)]
    early = served(home, [GREETING, READY, *requests])
    late = served(home, [GREETING, READY, *requests], *SLOW)
    assert len(early) == len(requests) + 1
    assert {answer["id"]: answer for answer in early} == {answer["id"]: answer for answer in late}


def test_early_and_late_answers_are_the_same(home: Path) -> None:
    plain = (
        ask(),
        ask(pageSize=1),
        ask(pageSize=1, cursor="2025-10-20T10-00-02|0199f0a0-0000-7000-8000-000000000002"),
        ask(pageSize=0, modelProviders=[]),
        ask(modelProviders=["other", "none"], cursor="no cursor"),
    )
    other = (
        ask(pageSize=-1),
        ask(pageSize=True),
        ask(modelProviders="mock"),
        ask(unknown=1),
        {"method": "listConversations"},
        {"method": "getUserAgent"},
    )
    assert_answered_alike(home, plain, other)


def test_only_a_plain_request_is_answered_early(home: Path) -> None:
    def answered(**params: Json) -> bool:
        return early_list(Request(2, "listConversations", params), home) is not None

    assert answered()
    assert answered(pageSize=1, cursor="x", modelProviders=["mock"])
    assert not any((answered(pageSize=-1), answered(pageSize=True), answered(cursor=1), answered(more=1)))
    assert early_list(Request(2, "getUserAgent", {}), home) is None
    rollout(home, 6, text="half \ud83d a character")
    assert not answered()


def test_what_follows_an_early_answer_is_served(home: Path) -> None:
    answers = served(home, [GREETING, READY, ask(), {**ask(), "id": 3}, {"id": 4, "method": "getUserAgent"}])
    assert sorted(answer["id"] for answer in answers) == [1, 2, 3, 4]
    by_id = {answer["id"]: answer.get("result") for answer in answers}
    assert by_id[2] == by_id[3]
    assert [item["preview"] for item in by_id[2]["items"]] == ["do it", "hello"]


def test_text_that_utf8_cannot_carry_is_the_engines_to_write(home: Path) -> None:
    rollout(home, 6, text="half \ud83d a character")
    assert served(home, [GREETING, ask()]) == served(home, [GREETING, ask()], *SLOW)


@pytest.mark.parametrize(
    "config", ["model_provider = 5\n", 'profile = "none"\n', "broken", 'model_provider = "nobody"\n']
)
def test_a_configuration_that_is_not_plain_is_the_engines_to_judge(home: Path, config: str) -> None:
    (home / "config.toml").write_text(config)
    early, late = served(home, [GREETING, ask()]), served(home, [GREETING, ask()], *SLOW)
    assert early == late
    assert "error" in early[1]


@pytest.mark.parametrize(
    ("first", "message"),
    [
        ({"id": 7, "method": "getUserAgent"}, "Not initialized"),
        ({"id": "a", "method": "listConversations", "params": {}}, "Not initialized"),
        ({"id": 7, "method": "initialize", "params": {}}, "Invalid request: missing field `clientInfo`"),
        ({"id": 7, "method": "initialize"}, "Invalid request"),
        ({"id": 7, "method": "initialize", "params": {"clientInfo": 5}}, "Invalid request"),
    ],
)
def test_what_comes_before_a_greeting_is_refused_alike_early_and_late(
    home: Path, first: Json, message: str
) -> None:
    refused, again, greeted, _ = served(home, [first, {**first, "id": 8}, GREETING, ask()])
    assert {**again, "id": first["id"]} == refused
    assert refused["error"]["message"].startswith(message)
    assert "userAgent" in greeted["result"]


def ask_threads(**params: Json) -> Json:
    return {"id": 2, "method": "thread/list", "params": params}


def test_early_and_late_pages_of_threads_are_the_same(home: Path) -> None:
    ThreadNotes(home, lambda: 0.0).set_name("0199f0a0-0000-7000-8000-000000000001", "a name")
    place = "2025-10-20T10-00-02|0199f0a0-0000-7000-8000-000000000002"
    plain = (
        ask_threads(),
        ask_threads(limit=1),
        ask_threads(limit=1, cursor=place),
        ask_threads(cursor=f"{place}|=", sortDirection="asc"),
        ask_threads(limit=0, modelProviders=[], sortKey="created_at"),
        ask_threads(modelProviders=["other", "none"], archived=False),
        ask_threads(archived=True),
    )
    other = (
        ask_threads(sortKey="updated_at", cwd="/w"),
        ask_threads(cursor="no cursor"),
        ask_threads(limit=-1),
        ask_threads(unknown=1),
        {"method": "thread/list"},
    )
    assert_answered_alike(home, plain, other)


def test_pages_are_read_one_after_another(home: Path) -> None:
    threads = EarlyThreads(home)
    cursor, seen = None, list[Json]()
    for _ in range(3):
        response = threads.answer(
            Request(2, "thread/list", {"limit": 1, "modelProviders": [], "cursor": cursor})
        )
        assert response is not None
        page = json.loads(response.response)["result"]
        seen += [each["preview"] for each in page["data"]]
        cursor = page["nextCursor"]
    assert (seen, cursor) == (["hello", "do it", "hello"], None)


def test_only_plain_requests_for_threads_are_answered_early(home: Path) -> None:
    def answered(**params: Json) -> bool:
        return EarlyThreads(home).answer(Request(2, "thread/list", params)) is not None

    assert answered(
        limit=1, sortKey="created_at", sortDirection="asc", modelProviders=["mock"], archived=None
    )
    assert not any((answered(limit=True), answered(cursor=1), answered(cwd="/"), answered(searchTerm="x")))
    assert not any((answered(sortKey="updated_at"), answered(cursor="x"), answered(archived=1)))


def test_pages_before_the_server_is_loaded_and_after_it_follow_one_another(home: Path) -> None:
    answers = served(
        home, [GREETING, READY, *({**ask_threads(), "id": n} for n in range(2, 5)), {**ask(), "id": 5}]
    )
    by_id = {answer["id"]: answer.get("result") for answer in answers}
    assert by_id[2] == by_id[3] == by_id[4]
    assert [item["preview"] for item in by_id[5]["items"]] == ["do it", "hello"]


@pytest.mark.parametrize("method", ["newConversation", "thread/start"])
def test_a_conversation_of_a_client_that_leaves_at_once_is_stored(home: Path, method: str) -> None:
    (home / "work").mkdir()
    new = {"id": 2, "method": method, "params": {"cwd": str(home / "work")}}
    [_, answer] = served(home, [GREETING, READY, new])
    result = answer["result"]
    path = Path(result["rolloutPath"] if method == "newConversation" else result["thread"]["path"])
    kinds = [json.loads(line)["type"] for line in path.read_text().splitlines()]
    assert kinds[0] == "session_meta"
    assert kinds.count("session_meta") == 1
    assert "response_item" in kinds  # the messages that every conversation begins with
