"""Names of rollouts, and the search for them in a home."""

import os
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.engine.storage import rollout_files
from app_server.engine.storage.pagination import ListKey, ListStart
from app_server.engine.storage.rollout_files import (
    NAME_LENGTH,
    SETTLED_NS,
    FolderNames,
    ListedName,
    RolloutFolder,
    file_names_in,
    find,
    find_file,
    folders,
    may_be_rollout,
    names_in,
    walk,
)
from app_server.engine.storage.rollout_names import (
    RolloutName,
    journal_path,
    new_rollout_path,
    parse_rollout_name,
    stored_path,
)
from app_server_protocol.ids import ConversationId
from app_server_protocol.rollout import utc_timestamp
from tests.engine.storage.stored import MOMENT, conversation_id

ID = conversation_id(1)
NAME = RolloutName("2026-01-02T03-04-05", ID)


def put(home: Path, name: RolloutName, *, archived: bool = False) -> Path:
    path = stored_path(home, name, archived=archived)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path


# --- names
def test_the_parts_of_a_name() -> None:
    assert NAME.file_name == f"rollout-2026-01-02T03-04-05-{ID}.jsonl"
    assert len(NAME.file_name) == NAME_LENGTH
    assert parse_rollout_name(NAME.file_name) == NAME


def test_ids_are_read_in_any_case() -> None:
    upper = RolloutName(NAME.stamp, ConversationId(ID.upper()))
    assert parse_rollout_name(upper.file_name) == NAME


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        NAME.file_name[1:],
        NAME.file_name + "x",
        NAME.file_name.replace("T", "t"),
        NAME.file_name.replace(".jsonl", "_jsonl"),
        NAME.file_name.replace("-0000-", "-000g-"),
        f".{NAME.file_name}.pending",
    ],
)
def test_other_names_are_no_rollouts(wrong: str) -> None:
    assert parse_rollout_name(wrong) is None


def test_where_a_rollout_is(tmp_path: Path) -> None:
    in_day = tmp_path / "sessions" / "2026" / "01" / "02" / NAME.file_name
    assert new_rollout_path(tmp_path, MOMENT, ID) == in_day
    assert stored_path(tmp_path, NAME) == in_day
    assert stored_path(tmp_path, NAME, archived=True) == tmp_path / "archived_sessions" / NAME.file_name
    assert journal_path(in_day) == in_day.with_name(f".{NAME.file_name}.pending")


def test_time_stamps_are_in_utc_with_milliseconds() -> None:
    assert utc_timestamp(MOMENT) == "2026-01-02T03:04:05.678Z"
    there = MOMENT.replace(microsecond=1_999).astimezone(timezone(timedelta(hours=5)))
    assert utc_timestamp(there) == "2026-01-02T03:04:05.001Z"


# --- walks
stamps = st.builds(
    "2026-{:02}-{:02}T00-00-{:02}".format, st.integers(1, 2), st.integers(1, 3), st.integers(0, 2)
)
rollout_names = st.builds(RolloutName, stamps, st.integers(0, 3).map(conversation_id))


def place(name: RolloutName, *, included: bool = False) -> ListStart:
    return ListStart(ListKey(*begun(name)), included)


def begun(name: RolloutName) -> tuple[str, str]:
    return name.started, name.conversation_id


@given(
    st.sets(rollout_names, max_size=8), st.none() | rollout_names, st.booleans(), st.booleans(), st.booleans()
)
def test_a_walk_has_the_names_in_order_from_where_it_begins(
    names: set[RolloutName], start: RolloutName | None, included: bool, newest_first: bool, archived: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        paths = {name: put(home, name, archived=archived) for name in names}
        bound = None if start is None else place(start, included=included)
        walked = list(walk(home, archived=archived, newest_first=newest_first, start=bound))
    expected = sorted(names, key=begun, reverse=newest_first)
    if start is not None:
        expected = [
            name
            for name in expected
            if (begun(name) < begun(start) if newest_first else begun(name) > begun(start))
            or (included and begun(name) == begun(start))
        ]
    assert [((each.started, each.id), path) for each, path in walked] == [
        (begun(name), paths[name]) for name in expected
    ]


def test_a_walk_reads_no_folder_of_days_before_its_begin(tmp_path: Path) -> None:
    days = [RolloutName(f"2026-01-{day:02}T00-00-00", ID) for day in (1, 12, 23)]
    for name in days:
        put(tmp_path, name)

    def read(*, newest_first: bool) -> list[str]:
        seen: list[str] = []

        def counted(folder: str) -> list[ListedName]:
            seen.append(folder[-2:])
            return names_in(folder)

        list(walk(tmp_path, newest_first=newest_first, start=place(days[1]), names_in=counted))
        return seen

    assert read(newest_first=True) == ["12", "01"]
    assert read(newest_first=False) == ["12", "23"]


def test_folders_are_those_of_days_and_the_archive(tmp_path: Path) -> None:
    for name in (
        "2026/01/02",
        "2026/01/1",
        "2026/02/03",
        "2025/12/31",
        "x/01/02",
        "2026/013/01",
        "20261/01/01",
    ):
        (tmp_path / "sessions" / name).mkdir(parents=True)
    (tmp_path / "sessions/2024").touch()
    (tmp_path / "sessions/2023").symlink_to(tmp_path / "sessions/2026")
    found = list(folders(tmp_path))
    days = ["2026-02-03", "2026-01-02", "2025-12-31"]
    assert [folder.day for folder in found] == days
    assert found[0].path == str(tmp_path / "sessions/2026/02/03")
    assert [folder.day for folder in folders(tmp_path, newest_first=False)] == days[::-1]
    assert list(folders(tmp_path, archived=True)) == [RolloutFolder(str(tmp_path / "archived_sessions"), "")]


def test_only_regular_files_with_such_names_may_be_rollouts(tmp_path: Path) -> None:
    def name(n: int) -> str:
        return RolloutName(NAME.stamp, conversation_id(n)).file_name

    for n in (3, 1):
        (tmp_path / name(n)).touch()
    (tmp_path / name(2)).mkdir()
    (tmp_path / name(4)).symlink_to(name(1))
    (tmp_path / name(5).replace("rollout", "rolloux")).touch()
    (tmp_path / name(6).replace(".jsonl", ".jsonx")).touch()
    (tmp_path / (name(7) + "x")).touch()
    assert files_in(tmp_path) == [name(1), name(3)]
    assert names_in(str(tmp_path / "none")) == []
    assert [may_be_rollout(each) for each in (name(1), name(1)[:-1], "r" + name(1))] == [True, False, False]


def test_ids_sort_without_regard_to_case(tmp_path: Path) -> None:
    names = [f"rollout-{NAME.stamp}-{letter}{ID[1:]}.jsonl" for letter in "aBcD"]
    for each in names:
        (tmp_path / each).touch()
    assert files_in(tmp_path) == names


def files_in(folder: Path) -> list[str]:
    return [each.file_name for each in names_in(str(folder))]


# --- one by id
def id_made(moment: datetime) -> ConversationId:
    text = f"{int(moment.timestamp() * 1000):012x}"
    return ConversationId(f"{text[:8]}-{text[8:]}-7000-8000-000000000001")


@pytest.mark.parametrize("days", [-1, 0, 1])
def test_a_rollout_is_found_in_the_day_that_its_id_says_in_any_time_zone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, days: int
) -> None:
    id = id_made(MOMENT)
    path = put(tmp_path, RolloutName(f"{MOMENT + timedelta(days=days):%Y-%m-%d}T00-00-00", id))

    searched: list[Path] = []

    def searches(home: Path, *, archived: bool = False) -> Iterator[RolloutFolder]:
        searched.append(home)
        yield from folders(home, archived=archived)

    monkeypatch.setattr(rollout_files, "folders", searches)
    assert find_file(tmp_path, id) == path
    assert find_file(tmp_path, id.upper()) == path
    assert searched == [], "it looks at no other day"
    assert find(tmp_path, id) == path


@pytest.mark.parametrize(
    "id", [ID, ConversationId("ffffffff-ffff-ffff-ffff-ffffffffffff"), ConversationId("x")]
)
def test_a_rollout_is_found_wherever_it_is(tmp_path: Path, id: ConversationId) -> None:
    assert find(tmp_path, id) is None
    name = RolloutName("2020-02-02T00-00-00", id)
    if id == "x":
        return
    path = put(tmp_path, name)
    assert find(tmp_path, id) == path
    loose = tmp_path / "sessions" / name.file_name
    path.rename(loose)
    assert find(tmp_path, id) == loose
    assert find(tmp_path, id, archived=True) is None
    archived = put(tmp_path, name, archived=True)
    assert find(tmp_path, id, archived=True) == archived


# --- cached names
def seconds(ns: int) -> float:
    return ns / 1e9


def test_names_are_kept_while_the_folder_stays_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []

    def counted(folder: str) -> list[str]:
        read.append(Path(folder).name)
        return file_names_in(folder)

    monkeypatch.setattr(rollout_files, "file_names_in", counted)
    monkeypatch.setattr(FolderNames, "MOST_KEPT", 2)
    changed = 1_700_000_000_000_000_000
    now = [seconds(changed + SETTLED_NS)]
    kept = FolderNames(lambda: now[0])
    for name in ("one", "two", "three"):
        (tmp_path / name).mkdir()
        (tmp_path / name / NAME.file_name).touch()
        os.utime(tmp_path / name, ns=(changed, changed))

    def ask(name: str) -> None:
        assert [each.file_name for each in kept(str(tmp_path / name))] == [NAME.file_name]

    ask("one")
    ask("one")
    assert read == ["one", "one"], "it changed too lately: what changes it now may leave its time as it is"
    now[0] += 1.0
    for name in ("one", "one", "two", "one", "three", "two", "three", "one"):
        ask(name)
    assert read[2:] == ["one", "two", "three", "one"], "those of the last few folders"
    os.utime(tmp_path / "one", ns=(changed + 5, changed + 5))
    ask("one")
    assert read[6:] == ["one"]
    assert kept(str(tmp_path / "none")) == []


def test_names_are_parsed_again_only_if_they_are_others(tmp_path: Path) -> None:
    """A folder that has just changed is read at each use, since its time may not show a further change."""
    kept = FolderNames(time.time)
    (tmp_path / NAME.file_name).touch()
    before = kept(str(tmp_path))
    assert kept(str(tmp_path)) is before
    (tmp_path / RolloutName(NAME.stamp, conversation_id(2)).file_name).touch()
    assert sorted(each.id for each in kept(str(tmp_path))) == [conversation_id(1), conversation_id(2)]


def test_the_day_of_an_id_is_in_utc() -> None:
    late = datetime(2026, 1, 2, 23, 59, tzinfo=UTC)
    assert [f"{day:%d}" for day in rollout_files._days_of(id_made(late))] == ["02", "03", "01"]
