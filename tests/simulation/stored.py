"""The rollout files of a simulated home. They are looked up often, and `Path.glob` is slow."""

import os
from functools import cached_property
from pathlib import Path

from app_server_protocol.encoding import Json
from tests.support.invariants import rollout
from tests.support.thread_invariants import StoredItems


def rollouts(folder: Path) -> list[Path]:
    """List all rollouts beneath a folder, in the order of their paths."""
    found = (os.path.join(where, name) for where, _, names in os.walk(folder) for name in names)
    return [Path(each) for each in sorted(found) if each.endswith(".jsonl") and "/rollout-" in each]


def rollout_of(home: Path, thread: str) -> Path | None:
    """Return the rollout of a thread that is not archived. None if it has none."""
    return next((each for each in rollouts(home / "sessions") if each.name.endswith(f"{thread}.jsonl")), None)


class StoredThreads:
    """Contents of a home's files when its world is over. Each file is read once."""

    def __init__(self, home: Path) -> None:
        self.paths = rollouts(home)
        self.items: dict[Path, StoredItems] = {}

    @cached_property
    def lines(self) -> dict[str, list[Json]]:
        return {path: lines for path, (lines, _) in self._read.items()}

    @property
    def broken(self) -> list[str]:
        """Problems of the files."""
        return [problem for _, broken in self._read.values() for problem in broken]

    @cached_property
    def _read(self) -> dict[str, tuple[list[Json], list[str]]]:
        return {str(path): rollout(path) for path in self.paths}
