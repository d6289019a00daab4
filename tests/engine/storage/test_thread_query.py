"""Queries of a list of threads, and the search of stored threads by their texts."""

import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.engine.storage import pagination, thread_index
from app_server.engine.storage import thread_summary as summary
from app_server.engine.storage.stored_conversations import archive_rollout
from app_server.engine.storage.thread_listing import ThreadLists
from app_server.engine.storage.thread_listing import matches as is_wanted
from app_server.engine.storage.thread_summary import (
    AFTER,
    BEFORE,
    FileState,
    MetadataStore,
    StoredThread,
    read_message_text,
    snippet,
)
from app_server_protocol.encoding import Json
from app_server_protocol.ids import SessionOrigin
from tests.engine.storage.stored import answered, asked, conversation_id, head, raw_line, store, user

ID = conversation_id(1)
STAMP = "2026-01-02T03-04-05"


def thread(*, has_user_message: bool = True, **over: Json) -> StoredThread:
    return StoredThread(
        head(**{"provider": "mine", **over}), Path("/r"), FileState(1, 2, 3, 4), has_user_message
    )


def wanted(**over: Json) -> pagination.ThreadFilter:
    return pagination.ThreadFilter(**{"sources": frozenset({"cli"}), "default_provider": "default", **over})


# --- places in a list
@given(st.integers(-5, 2**63 - 1), st.booleans())
def test_a_cursor_by_change_is_read_as_it_was_written(changed: int, included: bool) -> None:
    key = pagination.ListKey.of_change(changed, ID)
    assert pagination.parse_list_cursor(
        key.cursor(included=included), by_change=True
    ) == pagination.ListStart(key, included)
    assert int(key.value) == max(changed, 0)
    with pytest.raises(pagination.InvalidCursor):
        pagination.parse_list_cursor(key.cursor(), by_change=False)


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1))
def test_keys_sort_as_the_times_do(one: int, other: int) -> None:
    assert (pagination.ListKey.of_change(one, ID) < pagination.ListKey.of_change(other, ID)) is (one < other)


@pytest.mark.parametrize("included", [True, False])
def test_a_cursor_by_name_is_read_as_it_was_written(included: bool) -> None:
    key = pagination.ListKey(STAMP, ID)
    assert key.cursor(included=included) == f"{STAMP}|{ID}" + ("|=" if included else "")
    assert pagination.parse_list_cursor(
        key.cursor(included=included), by_change=False
    ) == pagination.ListStart(key, included)


@pytest.mark.parametrize(
    "cursor", ["", f"{STAMP}|{ID}|", f"{STAMP}|{ID}|=|=", f"{STAMP}|{ID.upper()}", f"5|{ID}"]
)
def test_another_cursor_is_refused_with_its_begin(cursor: str) -> None:
    with pytest.raises(pagination.InvalidCursor) as error:
        pagination.parse_list_cursor(cursor + "x" * 200, by_change=False)
    assert str(error.value) == f"invalid cursor: {(cursor + 'x' * 200)[:100]}"
    with pytest.raises(pagination.InvalidCursor):
        pagination.parse_list_cursor(cursor, by_change=False)


# --- filters
@pytest.mark.parametrize(
    ("over", "name", "matches"),
    [
        ({}, None, True),
        ({"sources": frozenset({"exec"})}, None, False),
        ({"providers": frozenset({"mine", "other"})}, None, True),
        ({"providers": frozenset({"default"})}, None, False),
        ({"providers": frozenset()}, None, False),
        ({"cwds": frozenset({"/work"})}, None, True),
        ({"cwds": frozenset({"/work/"})}, None, False),
        ({"search": "STRASSE"}, None, True),
        ({"search": "ß"}, "name", True),
        ({"search": "name"}, None, False),
        ({"search": "name"}, "My Name", True),
        ({"search": ""}, None, True),
    ],
)
def test_a_thread_matches_every_part_of_a_filter(over: Json, name: str | None, matches: bool) -> None:
    assert is_wanted(wanted(**over), thread(), name) is matches


def test_heads_are_compared_as_what_they_mean() -> None:
    assert not is_wanted(wanted(), thread(has_user_message=False), None)
    assert is_wanted(wanted(providers=frozenset({"default"})), thread(provider=""), None)
    assert is_wanted(wanted(cwds=frozenset({"/work"})), thread(cwd="/work//x/.."), None)
    assert not wanted().is_found("anything"), "nothing is searched"


@pytest.mark.parametrize(
    ("over", "follows"),
    [
        ({}, True),
        ({"by_change": True}, False),
        ({"filter": wanted(search="")}, False),
        ({"filter": wanted(cwds=frozenset())}, False),
        ({"filter": wanted(providers=frozenset())}, True),
    ],
)
def test_which_lists_need_no_index(over: Json, follows: bool) -> None:
    assert pagination.ListRequest(**{"filter": wanted(), **over}).follows_names is follows


# --- origins
@pytest.mark.parametrize(
    ("source", "word"),
    [
        (SessionOrigin.VSCODE, "vscode"),
        (SessionOrigin.UNKNOWN, "unknown"),
        ({"subagent": "review"}, "subagent_review"),
        ({"subagent": "compact"}, "subagent_compact"),
        ({"subagent": "thread_spawn"}, "subagent_thread_spawn"),
        ({"subagent": {"thread_spawn": {}}}, "subagent_thread_spawn"),
        ({"subagent": {"other": "x"}}, "subagent_other"),
        ({"subagent": "novel"}, "subagent_other"),
        ({"novel": 1}, "unknown"),
    ],
)
def test_words_for_who_began_it(source: Json, word: str) -> None:
    assert pagination.source_word(source) == word


def notes(home: Path) -> MetadataStore:
    return MetadataStore(home, lambda: 0.0)


def lists(home: Path) -> ThreadLists:
    return ThreadLists(home, notes(home), time.time)


def search(of: ThreadLists, term: str, *loaded: str, **over: Json) -> pagination.Page[pagination.FoundThread]:
    sources = over.pop("sources", frozenset({"vscode"}))
    request = pagination.ListRequest(
        filter=pagination.ThreadFilter(sources=sources, default_provider="mock"), **over
    )
    return of.search(request, term, loaded)


def numbers(found: pagination.Page[pagination.FoundThread]) -> list[int]:
    return [int(summary.id[-12:]) for summary, _ in found.rows]


def talk(home: Path, number: int, *said: str, changed: float | None = None) -> Path:
    """Write a thread in which the user said the first text and the agent the others."""
    path = store(home, [user(said[0]), asked(said[0]), *map(answered, said[1:])], number)
    if changed is not None:
        os.utime(path, (changed, changed))
    return path


def add(path: Path, text: str) -> None:
    with path.open("ab") as file:
        file.write(raw_line("event_msg", {"type": "agent_message", "message": text}))


# --- the texts
def test_what_both_said_is_searched_and_nothing_else(tmp_path: Path) -> None:
    path = talk(tmp_path, 1, "the question", "the answer")
    with path.open("ab") as file:
        file.write(raw_line("event_msg", {"type": "agent_reasoning", "text": "hidden thought"}))
        file.write(
            raw_line("response_item", {"type": "function_call_output", "output": "agent_message hidden"})
        )
        file.write(b'{"timestamp": torn "agent_message"\n')
        file.write(raw_line("event_msg", {"type": "agent_message", "message": 7}))
        file.write(raw_line("event_msg", {"type": "agent_message", "message": "more"}))
    assert read_message_text(path) == "the question\nthe answer\nmore"


def test_turns_that_were_taken_back_are_not_searched(tmp_path: Path) -> None:
    path = talk(tmp_path, 1, "kept", "gone")
    lines = len(path.read_bytes().splitlines())
    with path.open("ab") as file:
        file.write(
            raw_line("event_msg", {"type": "thread_rolled_back", "num_turns": 1, "kept_lines": lines - 1})
        )
    assert read_message_text(path) == "kept"


def test_a_long_conversation_is_searched_up_to_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(summary, "SEARCHED_CHARACTERS", 10)
    assert read_message_text(talk(tmp_path, 1, "123456", "789012", "x")) == "123456\n789"


def test_a_snippet_has_the_words_around_the_first_match() -> None:
    text = "a" * 100 + " first\n\n NEEDLE here " + "b" * 200 + " needle"
    assert snippet(text, "needle") == f"…{'a' * 39} first NEEDLE here {'b' * (AFTER - 6)}…"
    assert snippet("needle", "Needle") == "needle"
    assert snippet("other", "needle") is None


def test_a_snippet_begins_and_ends_at_its_place_where_characters_fold_to_several() -> None:
    text = "ß" * 60 + "needle" + "ß" * 200
    assert snippet(text, "NEEDLE") == f"…{'ß' * BEFORE}needle{'ß' * AFTER}…"


@given(st.text(max_size=300), st.text(min_size=1, max_size=5), st.text(max_size=300))
def test_every_text_is_found_in_whatever_case(before: str, term: str, after: str) -> None:
    text = before + term + after
    for wanted in (term, term.upper().lower(), term.swapcase()):
        found = snippet(text, wanted)
        if wanted.casefold() in text.casefold():
            assert found is not None
            assert len(found) <= BEFORE + 3 * len(term) + AFTER + 2
    assert snippet("ẞx İ" + text, term) is not None


# --- pages
@pytest.mark.parametrize("by_change", [False, True])
@pytest.mark.parametrize("newest_first", [False, True])
def test_pages_lead_through_all_that_match(tmp_path: Path, by_change: bool, newest_first: bool) -> None:
    for n in range(12):
        talk(tmp_path, n, f"question {n}", "Needle" if n % 2 else "hay", changed=1000 - n)
    of = lists(tmp_path)
    order: dict[str, Json] = {"by_change": by_change, "newest_first": newest_first}
    seen, cursor = list[int](), None
    for _ in range(3):
        page = search(of, "needle", limit=2, cursor=cursor, **order)
        seen += numbers(page)
        cursor = page.next_cursor
    assert cursor is None
    expected = [1, 3, 5, 7, 9, 11]
    assert seen == (expected[::-1] if newest_first is not by_change else expected)
    back = search(
        of, "needle", cursor=page.backwards_cursor, by_change=by_change, newest_first=not newest_first
    )
    assert numbers(back) == seen[:5][::-1]


def test_kinds_and_the_archive_are_filters(tmp_path: Path) -> None:
    for n in range(3):
        path = talk(tmp_path, n, "needle")
    archive_rollout(tmp_path, conversation_id(2), path)
    of = lists(tmp_path)
    assert numbers(search(of, "needle")) == [1, 0]
    assert numbers(search(of, "needle", archived=True)) == [2]
    assert numbers(search(of, "needle", sources=frozenset({"exec"}))) == []
    with pytest.raises(pagination.InvalidCursor):
        search(of, "needle", cursor="x")


# --- the index
def test_messages_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(5):
        talk(tmp_path, n, f"question {n}")
    of = lists(tmp_path)
    for of.reads_messages in (False, True):  # a client lists threads, and searches them for the first time
        while of.read_ahead() is not None:
            pass

    def refuse(path: Path) -> str:
        raise AssertionError(f"{path} is read again")

    monkeypatch.setattr(thread_index, "read_message_text", refuse)
    for term in ("quest", "question", "question 3", "question", "n 4"):
        assert len(search(of, term).rows) == (1 if term[-1].isdigit() else 5)
        assert len(search(lists(tmp_path), term).rows) == (1 if term[-1].isdigit() else 5)


def test_what_is_said_later_is_found(tmp_path: Path) -> None:
    paths = [talk(tmp_path, n, "question") for n in range(3)]
    of, other = lists(tmp_path), lists(tmp_path)
    assert numbers(search(of, "needle")) == numbers(search(other, "needle")) == []
    add(paths[1], "needle")
    # A change in this process is known at once; a change by another process is found when all files are checked.
    assert numbers(search(of, "needle", conversation_id(1))) == [1]
    assert numbers(search(other, "needle")) == [1], "what another server noted"
    paths[1].unlink()
    assert numbers(search(of, "needle")) == []
    talk(tmp_path, 5, "needle")
    assert numbers(search(other, "needle")) == numbers(search(of, "needle")) == [5]


def test_all_files_are_looked_at_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_index, "REST", 0.0)
    path = talk(tmp_path, 1, "question")
    of = lists(tmp_path)
    assert numbers(search(of, "needle")) == []
    add(path, "needle")
    assert numbers(search(of, "needle")) == [1]


def test_a_file_that_cannot_be_read_any_more_stops_nobody(tmp_path: Path) -> None:
    talk(tmp_path, 1, "needle")
    broken = talk(tmp_path, 2, "needle")
    of = lists(tmp_path)
    broken.write_bytes(b"{" * 1000)
    assert numbers(search(of, "needle")) == [1]
