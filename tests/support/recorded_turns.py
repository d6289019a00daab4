"""Turns that change files, recorded as the engine records them, without a model: commands are functions, patches are
applied as they are planned.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from app_server.engine.checkpoints.carry_out import Restored
from app_server.engine.checkpoints.kept_files import CheckpointFolder
from app_server.engine.checkpoints.preview import Preview
from app_server.engine.checkpoints.service import Checkpoints
from app_server.engine.checkpoints.turn_recorder import TurnFacts, TurnRecorder
from app_server.engine.config.file_rules import MayRead, reads_all
from app_server.engine.workspace.git.run_git import Git
from app_server.engine.workspace.patch.planner import FileEdit, PatchPlan, Place

MOMENT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
THREAD = "00000000-0000-7000-8000-000000000001"


@dataclass
class RecordedTurns:
    """The turns of one thread in a folder."""

    root: Path
    home: Path
    thread: str = THREAD
    may_read: MayRead = reads_all
    terminals: int = 0
    checkpoints: Checkpoints = field(init=False)
    ids: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def __post_init__(self) -> None:
        self.home.mkdir(exist_ok=True, parents=True)
        self.restart()

    def restart(self) -> None:
        """Begin a new server on the same home."""
        self.checkpoints = Checkpoints(Git(self.home), lambda: f"restore-{next(self.ids)}", lambda: 1.0)

    @property
    def folder(self) -> CheckpointFolder:
        return CheckpointFolder(self.home, self.thread)

    @asynccontextmanager
    async def turn(self, folder: str = "", words: str = "") -> AsyncIterator[TurnRecorder]:
        """Record a turn, which the block plays."""
        facts = TurnFacts(
            id=f"turn-{next(self.ids)}",
            words=words,
            at=1.0,
            cwd=os.path.realpath(self.root / folder),
            roots=(),
            may_read=self.may_read,
            now=lambda: MOMENT,
            terminals=lambda: self.terminals,
        )
        recorder = self.checkpoints.recorder(self.thread, facts)
        await self.checkpoints.begin(recorder)
        try:
            yield recorder
        finally:
            await recorder.finish()
            await self.checkpoints.end(recorder)

    async def commands(self, *steps: Callable[[], object], folder: str = "") -> str:
        """Record a turn that runs a command of these steps, and return its id."""
        async with self.turn(folder) as recorder, recorder.command():
            for step in steps:
                step()
        return recorder.turn.id

    async def patch(self, recorder: TurnRecorder, path: str, new: bytes | None) -> None:
        """Let the agent write or delete a file by a patch."""
        place = self.root / path
        old = place.read_bytes() if place.exists() else None
        if old is None and new is None:
            return
        mode = None if old is None else place.stat().st_mode & 0o777
        real = os.path.realpath(place)
        plan = PatchPlan(str(self.root), (FileEdit(Place(path, real, real), old, new, mode),), ())
        async with recorder.patch(plan):
            if new is None:
                place.unlink()
            else:
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(new)

    async def patched(self, path: str, new: bytes | None) -> str:
        """Record a turn that applies one patch, and return its id."""
        async with self.turn() as recorder:
            await self.patch(recorder, path, new)
        return recorder.turn.id

    async def preview(self, before: str, *, uncertain: bool = False) -> Preview:
        return await self.checkpoints.preview(self.thread, before, uncertain=uncertain)

    async def restore(
        self,
        before: str,
        *,
        uncertain: bool = False,
        conflicts: Literal["keep", "merge"] = "keep",
        token: str | None = None,
    ) -> Restored:
        return await self.checkpoints.restore(
            self.thread, before, token=token, conflicts=conflicts, uncertain=uncertain
        )

    def tick(self) -> None:
        """Wait for the next moment that the file system's clock can tell from this one."""
        before = self.folder.stamp()
        while self.folder.stamp() == before:
            pass

    def files(self) -> dict[str, bytes]:
        """Return every file below the root with its content, and every link with its target."""
        return contents(self.root)


def contents(root: Path) -> dict[str, bytes]:
    """Return every file below a folder with its content, and every link with its target, but for git's."""
    found = {}
    for folder, folders, files in os.walk(root):
        if ".git" in folders:
            folders.remove(".git")
        for name in (*files, *(each for each in folders if Path(folder, each).is_symlink())):
            place = Path(folder, name)
            link = place.is_symlink()
            found[str(place.relative_to(root))] = (
                b"-> " + os.fsencode(os.readlink(place)) if link else place.read_bytes()
            )
    return found
