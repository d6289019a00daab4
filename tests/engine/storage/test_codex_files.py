"""Rollouts that codex 0.169 and 0.171 wrote (tests/data, with long texts left out).

One thread has a command, patches, an interrupt, a failure and a compaction. It was reverted, so that it goes on in a
second file, and forked twice, so that two more files go on from it. Another has many kinds of items; one is of the
older form with members after its payloads.
"""

import json
import shutil
from pathlib import Path

import pytest

from app_server.engine.storage.line_reader import last_turn_context
from app_server.engine.storage.pagination import ListRequest, PageRequest, ThreadFilter
from app_server.engine.storage.record import read_record
from app_server.engine.storage.rollout_files import find, find_all
from app_server.engine.storage.rollout_names import ARCHIVED, RolloutName, stored_path
from app_server.engine.storage.rollout_reader import copy_lines, read_rollout, rebuild_history, reopen
from app_server.engine.storage.stored_conversations import (
    archive_rollout,
    delete_rollout,
    unarchive_rollout,
)
from app_server.engine.storage.stored_item_lines import item_fields, item_of_line
from app_server.engine.storage.thread_listing import ThreadLists
from app_server.engine.storage.thread_summary import MetadataStore, read_message_text, read_stored_thread
from app_server.engine.storage.turn_index import TurnIndexes, find_cut
from app_server.engine.storage.turn_pages import open_history
from app_server.engine.storage.writer import RolloutWriter
from app_server.engine.support.engine_errors import ConversationError, RolloutUnreadable
from app_server_protocol.encoding import Json
from app_server_protocol.engine import items
from app_server_protocol.engine.events import TurnRecord
from app_server_protocol.ids import ConversationId
from app_server_protocol.responses import MessageItem
from app_server_protocol.values import replace
from tests.engine.storage.stored import assistant, items_shown, meta, now, user

DATA = Path(__file__).parents[2] / "data"
KINDS = ConversationId("01a222cc-4219-7430-ba00-5b95bab7253a")
NAME = RolloutName("2026-11-28T16-00-00", KINDS)
OLDER = ConversationId("01a222cc-852e-7a11-a99e-cfece6843117")

WHOLE = [
    ["first words", "reasoning", "I run a command", "echo one; exit 3", "new.txt", "first answer"],
    ["second words", "new.txt", "second answer"],
    ["third words"],
    ["failing words"],
    ["compaction"],
    ["after compact", "answer after"],
    ["after revert", "answer after revert"],
]
"""Texts of the thread that was reverted: the turn before its last one is gone."""


@pytest.fixture(params=["0.169", "0.171"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return home_of_codex(tmp_path, request.param)


def home_of_codex(home: Path, version: str) -> Path:
    day = home / "sessions" / "2026" / "11" / "28"
    shutil.copytree(DATA / f"codex-{version}", day)
    return home


def threads_of(home: Path) -> tuple[ConversationId, ConversationId, ConversationId]:
    """Return the ids of the reverted thread, the fork of its first two turns, and the fork of all of it."""
    firsts = sorted(home.glob("sessions/**/rollout-*.jsonl"))
    reverted = ConversationId(next(path.stem[28:64] for path in firsts if "_" in path.stem))
    forks = [path.stem[28:64] for path in firsts if is_fork_of(path, reverted)]
    return reverted, ConversationId(forks[0]), ConversationId(forks[1])


def is_fork_of(path: Path, thread: str) -> bool:
    first = json.loads(path.read_text().splitlines()[0])
    return bool(first["payload"].get("forked_from_id") == thread)


def path_of(home: Path, id: ConversationId) -> Path:
    path = find(home, id)
    assert path is not None
    return path


def turns_of(path: Path, id: str) -> tuple[TurnRecord, ...]:
    with open_history(path, id, TurnIndexes()) as history:
        page = history.turns(PageRequest(newest_first=False, limit=100))
        assert history.all_turns() == page.rows
    stored = read_rollout(path, turns=True)
    assert stored.turns is not None
    assert stored.turns.turns == page.rows
    return page.rows


def shown(turns: tuple[TurnRecord, ...]) -> list[list[str]]:
    return [[shown_item(ended.item) for ended in turn.items] for turn in turns]


def shown_item(item: items.Item) -> str:
    match item:
        case items.UserMessage():
            return "".join(part.text for part in item.content if part.type == "text")
        case items.AgentMessage():
            return item.text
        case items.CommandExecution():
            return item.command[-1]
        case items.FileChange():
            return ", ".join(Path(path).name for path in item.changes)
        case items.ContextCompaction():
            return "compaction"
        case _:
            return type(item).__name__.lower()


def told(path: Path) -> list[str]:
    """Return the texts that the model is sent of a stored thread, its calls without their content."""
    stored = read_rollout(path)
    history = rebuild_history(stored.items, lambda before, line: line.replacement_history or ())
    texts = []
    for item in history:
        words = "".join(getattr(p, "text", "") for p in item.content) if isinstance(item, MessageItem) else ""
        texts += [words or item.type] if not words.startswith(("<", "# ")) else []
    return texts


# --- turns
def test_all_turns_are_shown_of_a_thread_that_was_reverted_and_of_its_forks(home: Path) -> None:
    reverted, cut, whole = threads_of(home)
    turns = turns_of(path_of(home, reverted), reverted)
    assert shown(turns) == WHOLE
    assert [turn.state.value for turn in turns[:5]] == [
        *("completed", "completed", "interrupted", "failed", "completed")
    ]
    assert turns[3].error is not None
    assert "bad thing" in turns[3].error.message
    command, patch = turns[0].items[3].item, turns[0].items[4].item
    assert isinstance(command, items.CommandExecution)
    assert (command.exit_code, command.output, command.cwd) == (3, "one\n", "/work/project")
    assert isinstance(patch, items.FileChange)
    assert patch.status is items.ItemStatus.COMPLETED
    assert shown(turns_of(path_of(home, cut), cut)) == [*WHOLE[:2], ["in the cut fork", "cut fork answer"]]
    assert shown(turns_of(path_of(home, whole), whole)) == [*WHOLE, ["in the fork", "fork answer"]]


def test_the_model_is_told_all_that_counts(home: Path) -> None:
    reverted, cut, whole = threads_of(home)
    compacted = ["first words", "second words", "third words", "failing words"]
    after = ["after compact", "answer after", "after revert", "answer after revert"]
    said = [text for text in told(path_of(home, reverted)) if not text.startswith("Another language model")]
    assert said == [*compacted, *after]
    assert told(path_of(home, whole))[-2:] == ["in the fork", "fork answer"]
    of_cut = told(path_of(home, cut))
    assert [text for text in of_cut if text == "function_call_output"] == ["function_call_output"] * 3
    assert of_cut[-3:] == ["second answer", "in the cut fork", "cut fork answer"]
    assert "gone answer" not in [*said, *told(path_of(home, whole)), *of_cut]


def test_every_kind_of_item_is_read_as_codex_shows_it(tmp_path: Path) -> None:
    path = path_of(home_of_codex(tmp_path, "0.171"), KINDS)
    turns = turns_of(path, KINDS)
    kinds = [[type(ended.item).__name__ for ended in turn.items] for turn in turns]
    assert kinds == [
        [
            *("UserMessage", "McpToolCall", "ImageView", "DynamicToolCall", "WebSearch", "WebSearch"),
            *("AgentMessage", "CommandExecution"),
        ],
        ["CommandExecution"],
        ["UserMessage", "Plan", "AgentMessage"],
        ["EnteredReview", "ExitedReview"],
        ["UserMessage", "CommandExecution", "AgentMessage"],
    ], "neither the turn of the reviewer is one of the thread, nor is the review told twice"
    calls = [ended.item for ended in turns[0].items]
    assert isinstance(calls[1], items.McpToolCall)
    assert (calls[1].invocation.server, calls[1].status) == ("kit", items.ItemStatus.COMPLETED)
    words = turns[2].items[0].item
    assert isinstance(words, items.UserMessage)
    assert [part.type for part in words.sent or ()] == ["text", "local_image", "image"]
    assert read_rollout(path, turns=True).damaged == read_rollout(path, messages=True).damaged == 0
    listed = items_shown(path, KINDS)
    assert {type(each.item).__name__ for each in listed} >= {kind for turn in kinds for kind in turn}


def test_items_are_written_as_codex_writes_them() -> None:
    for path in DATA.glob("codex-0.1*/*.jsonl"):
        for line in path.read_bytes().splitlines():
            record = read_record(line)
            assert record is not None
            payload = record.value() or {}
            if record.name == "item_completed":
                item = item_of_line(record.name, payload)
                assert item is not None, payload
                written = item_fields(item)
                assert without_nulls(written["item"]) == without_nulls(payload["item"])
                assert item_of_line("item_completed", json.loads(json.dumps(written))) == item


def without_nulls(value: Json) -> Json:
    return {name: field for name, field in value.items() if field is not None}


def test_members_behind_the_payload_and_events_of_later_versions_count_in_the_older_form(
    tmp_path: Path,
) -> None:
    path = path_of(home_of_codex(tmp_path, "0.171"), OLDER)
    assert shown(turns_of(path, OLDER)) == [
        ["first words", "reasoning", "I run", "echo one", "new.txt", "mcptoolcall", "first answer"],
        ["compaction"],
        ["after compaction", "answer 6"],
    ]
    assert "after compaction" in told(path)
    kinds = [type(each.item).__name__ for each in items_shown(path, OLDER)]
    assert kinds.count("FileChange") == kinds.count("McpToolCall") == kinds.count("CommandExecution") == 1


def test_the_settings_of_the_last_turn_are_read(home: Path) -> None:
    last = last_turn_context(path_of(home, threads_of(home)[0]))
    assert last is not None
    assert (last.model, last.sandbox_policy.mode, last.turn_id is not None) == (
        *("mock-model", "danger-full-access", True),
    )


# --- lists
def listed(home: Path, **asked: Json) -> list[tuple[str, str]]:
    sources = frozenset({"vscode", "cli"})
    wanted = ThreadFilter(sources=sources, default_provider="mock", **asked)
    lists = ThreadLists(home, MetadataStore(home, lambda: 0.0), lambda: 2e9)
    page = lists.page(ListRequest(filter=wanted))
    by_change = lists.page(ListRequest(filter=wanted, by_change=True))
    assert {row.id for row in page.rows} == {row.id for row in by_change.rows}
    assert {row.path for row in page.rows} == {row.path for row in by_change.rows}
    return [(row.id, row.preview) for row in page.rows]


def test_threads_are_listed_once_and_found_by_what_was_said_in_them(home: Path) -> None:
    reverted, cut, whole = threads_of(home)
    found = [row for row in listed(home) if row[0] in (reverted, cut, whole)]
    assert found == [(whole, "first words"), (cut, "first words"), (reverted, "first words")]
    assert {id for id, _ in listed(home, search="first")} >= {reverted, cut, whole}
    text = read_message_text(path_of(home, reverted))
    assert "answer after revert" in text
    assert "gone answer" not in text


def test_a_thread_in_several_files_is_archived_and_comes_back_as_a_whole(home: Path) -> None:
    reverted, cut, _ = threads_of(home)
    files = find_all(home, reverted)
    assert len(files) == 2
    archive_rollout(home, reverted, files[-1])
    assert find(home, reverted) is None
    assert reverted not in [id for id, _ in listed(home)]
    assert shown(turns_of(path_of(home, cut), cut))[0] == WHOLE[0], "its forks find it in the archive"
    unarchive_rollout(home, home / ARCHIVED / files[-1].name)
    assert find_all(home, reverted) == files


def test_a_thread_is_deleted_only_when_no_other_goes_on_from_it(home: Path) -> None:
    reverted, cut, whole = threads_of(home)
    with pytest.raises(ConversationError, match="goes on from it"):
        delete_rollout(home, path_of(home, reverted))
    assert len(find_all(home, reverted)) == 2
    for id in (cut, whole, reverted):
        delete_rollout(home, path_of(home, id))
    assert find_all(home, reverted) == []


def test_a_missing_file_is_an_error_and_not_a_thread_without_its_past(home: Path) -> None:
    reverted, cut, _ = threads_of(home)
    first = find_all(home, reverted)[0]
    first.rename(home / "elsewhere")
    with pytest.raises(RolloutUnreadable, match="is not there"):
        read_rollout(path_of(home, cut))
    assert read_stored_thread(path_of(home, cut)).head.preview == "in the cut fork"


# --- resuming
def ordinals(path: Path) -> list[int | None]:
    return [json.loads(line).get("ordinal") for line in path.read_text().splitlines()]


def test_a_file_goes_on_in_its_form(home: Path) -> None:
    reverted, _, _ = threads_of(home)
    path = path_of(home, reverted)
    before = ordinals(path)
    reopened = reopen(path, now)
    assert reopened.writer.form.paginated == reverted
    reopened.writer.append([user("more"), assistant("and more")])
    reopened.writer.close()
    last = before[-1]
    assert last is not None
    assert ordinals(path) == [*before, last + 1, last + 2]
    assert told(path)[-2:] == ["more", "and more"]


def test_a_copy_has_all_lines_in_one_file_under_numbers_of_its_own(home: Path) -> None:
    reverted, _, _ = threads_of(home)
    stored = read_rollout(path_of(home, reverted))
    of_copy = replace(meta(7), history_mode="paginated")
    copy = stored_path(home, replace(NAME, conversation_id=of_copy.id))
    writer = RolloutWriter.create(copy, now, [of_copy], paginated=of_copy.id)
    copy_lines(stored, writer)
    writer.close()
    assert ordinals(copy) == list(range(len(ordinals(copy))))
    assert shown(turns_of(copy, of_copy.id)) == WHOLE
    assert told(copy) == told(stored.path)


def test_a_cut_before_a_turn_counts_the_turns_of_the_user(home: Path) -> None:
    reverted, _, _ = threads_of(home)
    path = path_of(home, reverted)
    turns = turns_of(path, reverted)
    cut = find_cut(path, reverted, TurnIndexes(), turns[4].id, behind=False)
    assert cut.turns == 2, "the compaction is none of them"


def test_a_line_of_a_known_kind_that_cannot_be_read_is_counted(home: Path) -> None:
    reverted, _, _ = threads_of(home)
    path = path_of(home, reverted)
    with path.open("ab") as file:
        for item in ({"type": "UserMessage", "id": "x"}, {"type": "NewKind", "id": "y"}):
            payload = {"type": "item_completed", "thread_id": reverted, "turn_id": "t", "item": item}
            line = {"timestamp": "", "ordinal": 1000, "type": "event_msg", "payload": payload}
            file.write(json.dumps(line).encode() + b"\n")
    assert read_rollout(path, turns=True).damaged == read_rollout(path, messages=True).damaged == 1
