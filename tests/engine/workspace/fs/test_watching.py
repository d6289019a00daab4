"""Watches of paths that come and go. Each step waits for the expected change, without a time limit of its own."""

import errno
import os
import shutil
import struct
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path

import anyio
import pytest

from app_server.engine.support.engine_errors import FileRefused
from app_server.engine.workspace.fs import path_changes, watching
from app_server.engine.workspace.fs.path_changes import (
    Inotify,
    InotifyEvent,
    changed_paths,
    parse_events,
    take_snapshot,
)
from app_server.engine.workspace.fs.watching import FileWatcher

needs_inotify = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has inotify")


def exhausted() -> Inotify:
    """Raise the error of a user without a free inotify instance."""
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


@pytest.fixture(params=[pytest.param("inotify", marks=needs_inotify), "polling"], autouse=True)
def _source(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run each test with inotify and without."""
    if request.param == "polling":
        monkeypatch.setattr(watching, "POLL_SECONDS", 0.01)
        monkeypatch.setattr(watching, "POLL_REST", 0.0)
        monkeypatch.setattr(path_changes, "Inotify", exhausted)


class Heard:
    """Record of a client's notifications."""

    def __init__(self) -> None:
        self.changes: list[tuple[str, str]] = []
        self.notifications = 0
        self._more = anyio.Event()

    async def tell(self, id: str, paths: Sequence[str]) -> None:
        self.notifications += 1
        self.changes += [(id, path) for path in paths]
        self._more.set()
        self._more = anyio.Event()

    async def of(self, id: str, path: Path) -> None:
        """Wait for this notification, and forget all received ones."""
        with anyio.fail_after(20):
            while (id, str(path)) not in self.changes:
                await self._more.wait()
        self.changes.clear()


@asynccontextmanager
async def watcher() -> AsyncIterator[tuple[FileWatcher, Heard]]:
    heard = Heard()
    async with anyio.create_task_group() as tasks:
        yield FileWatcher(heard.tell, tasks), heard
        tasks.cancel_scope.cancel()


async def watch(files: FileWatcher, id: str, path: Path) -> None:
    assert await files.watch(id, str(path)) == str(path)
    files.begin(id)


async def test_names_in_a_directory_and_what_is_in_the_files(tmp_path: Path) -> None:
    async with watcher() as (files, heard):
        await watch(files, "w", tmp_path)
        (tmp_path / "f").write_text("x")
        await heard.of("w", tmp_path / "f")
        (tmp_path / "f").write_text("y")
        await heard.of("w", tmp_path / "f")
        (tmp_path / "f").rename(tmp_path / "g")
        await heard.of("w", tmp_path / "g")
        (tmp_path / "g").unlink()
        await heard.of("w", tmp_path / "g")


async def test_a_path_that_is_not_there_yet(tmp_path: Path) -> None:
    deep = tmp_path / "a" / "b" / "f"
    async with watcher() as (files, heard):
        await watch(files, "w", deep)
        deep.parent.mkdir(parents=True)
        deep.write_text("x")
        await heard.of("w", deep)
        deep.write_text("y")
        await heard.of("w", deep)
        shutil.rmtree(tmp_path / "a")
        await heard.of("w", deep)
        deep.parent.mkdir(parents=True)
        deep.write_text("z")
        await heard.of("w", deep)


async def test_a_directory_that_comes_back(tmp_path: Path) -> None:
    folder = tmp_path / "d"
    folder.mkdir()
    async with watcher() as (files, heard):
        await watch(files, "w", folder)
        folder.rmdir()
        await heard.of("w", folder)
        folder.mkdir()
        await heard.of("w", folder)
        (folder / "f").touch()
        await heard.of("w", folder / "f")


async def test_a_file_that_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("x")
    async with watcher() as (files, heard):
        await watch(files, "w", path)
        for _ in range(2):
            (tmp_path / "new").write_text("y")
            (tmp_path / "new").rename(path)
            await heard.of("w", path)
        assert {changed for _, changed in heard.changes} <= {str(path)}


async def test_two_watches_of_one_directory_end_on_their_own(tmp_path: Path) -> None:
    async with watcher() as (files, heard):
        await watch(files, "one", tmp_path)
        await watch(files, "two", tmp_path)
        with pytest.raises(FileRefused, match="watchId already exists: one"):
            await files.watch("one", str(tmp_path))
        files.unwatch("one")
        (tmp_path / "f").touch()
        await heard.of("two", tmp_path / "f")
        (tmp_path / "g").touch()
        await heard.of("two", tmp_path / "g")
        assert heard.changes == []


async def test_nothing_is_told_before_the_answer(tmp_path: Path) -> None:
    async with watcher() as (files, heard):
        await files.watch("early", str(tmp_path))
        await watch(files, "other", tmp_path)
        (tmp_path / "f").touch()
        await heard.of("other", tmp_path / "f")
        assert heard.changes == []
        files.begin("early")
        await heard.of("early", tmp_path / "f")


async def test_many_changes_are_told_as_one(tmp_path: Path) -> None:
    folder = tmp_path / "d"
    folder.mkdir()
    async with watcher() as (files, heard):
        await watch(files, "w", folder)
        for n in range(watching.MAX_CHANGES + 10):
            (folder / f"f{n}").touch()
        await heard.of("w", folder)
        assert heard.notifications < 10


async def test_watches_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "MAX_WATCHES", 1)
    async with watcher() as (files, _):
        await watch(files, "w", tmp_path)
        with pytest.raises(FileRefused, match="no more than 1"):
            await files.watch("x", str(tmp_path))
        files.unwatch("w")
        with pytest.raises(FileRefused, match="characters"):
            await files.watch("x" * 2000, str(tmp_path))
        await watch(files, "x", tmp_path)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has inotify")
async def test_the_paths_for_which_no_watch_is_left_are_polled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(path_changes, "Inotify", Inotify)
    monkeypatch.setattr(watching, "POLL_SECONDS", 0.01)
    add, left = Inotify.add, [2]

    def limited(self: Inotify, directory: str) -> int:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return add(self, directory)

    monkeypatch.setattr(Inotify, "add", limited)
    folder, other = tmp_path / "d", tmp_path / "e"
    folder.mkdir()
    other.mkdir()
    async with watcher() as (files, heard):
        await watch(files, "noticed", folder)
        await watch(files, "polled", other)
        for _ in range(2):
            (folder / "f").write_text("x")
            await heard.of("noticed", folder / "f")
            (other / "f").write_text("x")
            await heard.of("polled", other / "f")
        # A path that moves away needs a watch for its new place, and is polled from then on.
        folder.rename(tmp_path / "gone")
        await heard.of("noticed", folder)
        folder.mkdir()
        await heard.of("noticed", folder)
        (folder / "g").touch()
        await heard.of("noticed", folder / "g")


async def test_a_path_that_cannot_be_watched_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> Inotify:
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(path_changes, "Inotify", refuse)
    async with watcher() as (files, _):
        for _ in range(2):
            with pytest.raises(PermissionError):
                await files.watch("w", str(tmp_path))


def test_a_large_directory_changes_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(path_changes, "MAX_NAMES", 2)
    path = str(tmp_path)
    seen = [take_snapshot(path)]
    for n in range(4):
        (tmp_path / f"f{n}").touch()
        os.utime(path, ns=(n, n))
        seen.append(take_snapshot(path))
    told = [changed_paths(path, before, now) for before, now in pairwise(seen)]
    assert told == [{f"{path}/f0"}, {f"{path}/f1"}, {path}, {path}]


def test_a_look_without_a_free_descriptor_says_nothing_of_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "f").touch()
    before = take_snapshot(str(tmp_path))

    def refuse(path: str) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "scandir", refuse)
    assert take_snapshot(str(tmp_path), before) == before


def test_events_are_parsed() -> None:
    data = struct.pack("iIII8s", 1, 0x100, 0, 8, b"n\xff\0\0") + struct.pack("iIII", -1, 0x4000, 0, 0)
    assert list(parse_events(data)) == [InotifyEvent(1, 0x100, "n\ufffd"), InotifyEvent(-1, 0x4000, "")]
