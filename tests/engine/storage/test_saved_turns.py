"""The turns of long files in the index of the home: what is read after a start, and what costs the index alone."""

import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from app_server.engine.storage import saved_turns, turn_index, turn_places
from app_server.engine.storage.index_file import FILE_NAME, IndexFile
from app_server.engine.storage.line_reader import raw_lines
from app_server.engine.storage.pagination import PageRequest
from app_server.engine.storage.record import RawLine
from app_server.engine.storage.saved_turns import SavedTurns
from app_server.engine.storage.stored_conversations import StoredConversations
from app_server.engine.storage.turn_index import TurnIndexes
from app_server.engine.storage.turn_pages import open_history
from app_server.engine.support.lazy import Lazy
from app_server_protocol.encoding import Json
from app_server_protocol.engine.events import TurnRecord
from app_server_protocol.engine.items import ExitedReview, item_to_value
from tests.engine.storage.test_turn_index import META, THREAD, begin, encoded, end, image, reverted, said

TURNS = 40


def turn(id: str) -> bytes:
    return b"".join(map(encoded, (begin(id), said(f"words of {id}", turn_id=id), image("i", id), end(id))))


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file whose turns are saved, with items of one id and with reverted lines."""
    monkeypatch.setattr(turn_places, "MIN_BYTES", 1000)
    path = tmp_path / "r.jsonl"
    lines = [
        encoded(META),
        *(turn(f"t{n}") for n in range(TURNS)),
        turn("gone"),
        encoded(reverted(1 + 4 * TURNS)),
    ]
    path.write_bytes(b"".join(lines))
    return path


def server(path: Path) -> TurnIndexes:
    """Return the indexes of a server that has just started."""
    return TurnIndexes(Lazy(lambda: SavedTurns(Lazy(lambda: IndexFile(path.parent)))))


def page(path: Path, indexes: TurnIndexes) -> list[TurnRecord]:
    """Return all turns, the last one first."""
    with open_history(path, THREAD, indexes) as history:
        return [*history.turns(PageRequest(limit=100, newest_first=True)).rows]


def saved(path: Path) -> list[tuple[int, str]]:
    with closing(sqlite3.connect(path.parent / FILE_NAME)) as database:
        return database.execute("SELECT inode, thread FROM turns").fetchall()


@pytest.fixture
def lines_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of the lines that were read for an index."""
    read: list[int] = []

    def counted(fd: int, number: int = 0, begin: int = 0, end: int | None = None) -> Iterator[RawLine]:
        for line in raw_lines(fd, number, begin, end):
            read.append(line.number)
            yield line

    monkeypatch.setattr(turn_index, "raw_lines", counted)
    return read


def test_a_server_that_starts_reads_only_what_was_appended_since_a_page(
    path: Path, lines_read: list[int]
) -> None:
    before = page(path, server(path))
    assert [each.id for each in before[:2]] == [f"t{TURNS - 1}", f"t{TURNS - 2}"]
    assert before[0].items[-1].item.id == f"i-{TURNS}"
    assert saved(path) == [(path.stat().st_ino, THREAD)]
    lines_read.clear()
    assert page(path, server(path)) == before
    assert lines_read == []
    with path.open("ab") as file:
        file.write(turn("new"))
    after = page(path, server(path))
    assert set(lines_read) == {*range(4 * TURNS + 6, 4 * TURNS + 10)}
    assert after[1:] == before
    assert after[0].items[-1].item.id == f"i-{TURNS + 2}", "the item of the reverted turn has its id for ever"
    with path.open("ab") as file:
        file.write(encoded(reverted(4 * TURNS + 6)))
    assert page(path, server(path)) == before


def test_turns_are_saved_again_when_much_was_appended(path: Path, lines_read: list[int]) -> None:
    indexes = server(path)
    page(path, indexes)
    for n in range(20):
        with path.open("ab") as file:
            file.write(turn(f"more{n}"))
        page(path, indexes)
    lines_read.clear()
    page(path, server(path))
    assert len(set(lines_read)) < 20 * 4, "some of them were saved"


CALL = {"line": "response_item", "type": "function_call", "name": "shell", "arguments": "{}", "call_id": "c"}
OUTPUT = {**CALL, "type": "function_call_output", "output": "done"}
REVIEW = item_to_value(ExitedReview("e", None))


@pytest.mark.parametrize(
    "opened",
    [
        [said("a command"), CALL],
        [said("a command"), CALL, OUTPUT],
        [said("a question"), {"type": "agent_reasoning", "text": "a thought"}],
        [said("an item before its call"), {"type": "turn_item", "item": image("c", "")["item"]}],
        [begin("r"), {"type": "turn_item", "turn_id": "r", "item": REVIEW}],
        [begin("n"), said("announced", item_id="n")],
    ],
    ids=["call", "output", "reasoning", "item", "review", "announced"],
)
def test_what_is_open_is_not_saved_until_it_has_ended(path: Path, opened: list[Json]) -> None:
    with path.open("ab") as file:
        file.write(b"".join(map(encoded, opened)))
    page(path, server(path))
    assert saved(path) == []
    with path.open("ab") as file:
        file.write(turn("next"))
    page(path, server(path))
    assert len(saved(path)) == 1


def test_a_file_that_was_changed_in_its_middle_is_read_anew(path: Path, lines_read: list[int]) -> None:
    page(path, server(path))
    path.write_bytes(path.read_bytes().replace(b'"t20"', b'"T20"'))
    lines_read.clear()
    found = [each.id for each in page(path, server(path))]
    assert found == [f"T{n}" if n == 20 else f"t{n}" for n in reversed(range(TURNS))]
    assert page(path, server(path)) == page(path, TurnIndexes())


def another_file(path: Path) -> None:
    path.write_bytes(encoded(META) + turn("x") * 1 + b"".join(turn(f"y{n}") for n in range(TURNS)))


def damaged_row(path: Path) -> None:
    with closing(sqlite3.connect(path.parent / FILE_NAME, isolation_level=None)) as database:
        database.execute("UPDATE turns SET saved = x'ff00'")


def row_of_another_form(path: Path) -> None:
    with closing(sqlite3.connect(path.parent / FILE_NAME, isolation_level=None)) as database:
        database.execute("UPDATE turns SET saved = x'93010203'")


def damaged_file(path: Path) -> None:
    (path.parent / FILE_NAME).write_bytes(b"no database" * 1000)


def deleted(path: Path) -> None:
    for each in path.parent.glob(f"{FILE_NAME}*"):
        each.unlink()


def unreadable(path: Path) -> None:
    deleted(path)
    (path.parent / FILE_NAME).symlink_to("/etc/passwd")


@pytest.mark.parametrize(
    "spoil", [another_file, damaged_row, row_of_another_form, damaged_file, deleted, unreadable]
)
def test_turns_are_those_of_the_file_whatever_was_saved(path: Path, spoil: Callable[[Path], None]) -> None:
    page(path, server(path))
    spoil(path)
    assert page(path, server(path)) == page(path, TurnIndexes())
    assert page(path, server(path)) == page(path, TurnIndexes())


def test_a_locked_index_costs_the_index_and_only_until_it_is_free(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app_server.engine.storage.index_file.BUSY_SECONDS", 0.01)
    indexes = server(path)
    SavedTurns(Lazy(lambda: IndexFile(path.parent))).load((0, 0), THREAD)  # the tables are made
    with closing(sqlite3.connect(path.parent / FILE_NAME, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert page(path, indexes) == page(path, TurnIndexes())
        other.execute("ROLLBACK")
    with path.open("ab") as file:
        file.write(turn("new"))
    assert page(path, indexes) == page(path, TurnIndexes())


def test_the_files_that_were_saved_last_are_kept(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved_turns, "MOST_FILES", 2)
    others = [path.with_name(f"{n}.jsonl") for n in range(3)]
    for each in others:
        each.write_bytes(path.read_bytes())
        page(each, server(path))
    assert {inode for inode, _ in saved(path)} == {each.stat().st_ino for each in others[1:]}


async def test_only_a_long_file_loads_the_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = StoredConversations(tmp_path, time.time)
    path = tmp_path / "r.jsonl"
    path.write_bytes(encoded(META) + turn("a"))

    async def first() -> str:
        return await stored.turns(path, THREAD, lambda history: history.turns(PageRequest()).rows[0].id)

    assert await first() == "a"
    assert FILE_NAME not in os.listdir(tmp_path)
    monkeypatch.setattr(turn_places, "MIN_BYTES", 100)
    with path.open("ab") as file:
        file.write(turn("b"))
    assert await first() == "a"
    assert FILE_NAME in os.listdir(tmp_path)
    assert (tmp_path / FILE_NAME).stat().st_mode & 0o777 == 0o600


SAVER = """
import sys
from pathlib import Path
from app_server.engine.storage import turn_places
from app_server.engine.storage.index_file import IndexFile
from app_server.engine.storage.pagination import PageRequest
from app_server.engine.storage.saved_turns import SavedTurns
from app_server.engine.storage.turn_index import TurnIndexes
from app_server.engine.storage.turn_pages import open_history
from app_server.engine.support.lazy import Lazy
turn_places.MIN_BYTES = 1000
path, thread = Path(sys.argv[1]), sys.argv[2]
saved = SavedTurns(Lazy(lambda: IndexFile(path.parent)))
while True:
    saved.forget((path.stat().st_dev, path.stat().st_ino))
    with open_history(path, thread, TurnIndexes(Lazy(lambda: saved))) as history:
        print(len(history.turns(PageRequest(limit=100)).rows), flush=True)
"""


def test_servers_that_save_and_are_killed_leave_an_index_that_can_be_used(path: Path) -> None:
    expected = page(path, TurnIndexes())
    servers = [
        subprocess.Popen([sys.executable, "-c", SAVER, path, THREAD], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    try:
        for each in servers:
            assert each.stdout is not None
            assert [each.stdout.readline() for _ in range(20)] == [f"{TURNS}\n"] * 20
            assert page(path, server(path)) == expected
            each.kill()
    finally:
        for each in servers:
            each.kill()
            each.communicate()
    assert page(path, server(path)) == expected
    with closing(sqlite3.connect(path.parent / FILE_NAME)) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
