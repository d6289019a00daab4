"""What a list of threads wants: cursors, filters and the words for who began a thread."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.core.rollout.summary import FileState, StoredHead, StoredThread
from app_server.core.rollout.thread_listing import matches as is_wanted
from app_server.core.rollout.thread_query import (
    InvalidListCursor,
    ListKey,
    ListRequest,
    ListStart,
    ThreadFilter,
    parse_list_cursor,
    source_word,
)
from protocol.base import Json
from protocol.ids import SessionOrigin
from tests.unit.rollout.stored import conversation_id

ID = conversation_id(1)
STAMP = "2026-01-02T03-04-05"


def thread(*, has_user_message: bool = True, **over: Json) -> StoredThread:
    fields = {
        "id": ID,
        "preview": "Straße",
        "timestamp": "",
        "provider": "mine",
        "cwd": "/work",
        "cli_version": "1",
        "source": SessionOrigin.CLI,
        "git": None,
        "originator": "test",
        "forked_from": None,
    }
    head = StoredHead(**{**fields, **over})
    return StoredThread(head, Path("/r"), FileState(1, 2, 3, 4), has_user_message)


def wanted(**over: Json) -> ThreadFilter:
    return ThreadFilter(**{"sources": frozenset({"cli"}), "default_provider": "default", **over})


# --- places in a list
@given(st.integers(-5, 2**63 - 1), st.booleans())
def test_a_cursor_by_change_is_read_as_it_was_written(changed: int, included: bool) -> None:
    key = ListKey.of_change(changed, ID)
    assert parse_list_cursor(key.cursor(included=included), by_change=True) == ListStart(key, included)
    assert int(key.value) == max(changed, 0)
    with pytest.raises(InvalidListCursor):
        parse_list_cursor(key.cursor(), by_change=False)


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1))
def test_keys_sort_as_the_times_do(one: int, other: int) -> None:
    assert (ListKey.of_change(one, ID) < ListKey.of_change(other, ID)) is (one < other)


@pytest.mark.parametrize("included", [True, False])
def test_a_cursor_by_name_is_read_as_it_was_written(included: bool) -> None:
    key = ListKey(STAMP, ID)
    assert key.cursor(included=included) == f"{STAMP}|{ID}" + ("|=" if included else "")
    assert parse_list_cursor(key.cursor(included=included), by_change=False) == ListStart(key, included)


def test_no_cursor_is_the_begin() -> None:
    assert parse_list_cursor(None, by_change=True) is None
    assert parse_list_cursor(None, by_change=False) is None


@pytest.mark.parametrize(
    "cursor", ["", f"{STAMP}|{ID}|", f"{STAMP}|{ID}|=|=", f"{STAMP}|{ID.upper()}", f"5|{ID}"]
)
def test_another_cursor_is_refused_with_its_begin(cursor: str) -> None:
    with pytest.raises(InvalidListCursor) as error:
        parse_list_cursor(cursor + "x" * 200, by_change=False)
    assert str(error.value) == f"invalid cursor: {(cursor + 'x' * 200)[:100]}"
    with pytest.raises(InvalidListCursor):
        parse_list_cursor(cursor, by_change=False)


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
    assert ListRequest(**{"filter": wanted(), **over}).follows_names is follows


# --- who began it
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
    assert source_word(source) == word
