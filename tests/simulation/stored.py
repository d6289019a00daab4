"""Where a simulated home has its rollouts. Looked for often, and `Path.glob` takes its time."""

import os
from pathlib import Path


def rollouts(folder: Path) -> list[Path]:
    """Return all rollouts beneath a folder, in the order of their paths."""
    found = (os.path.join(where, name) for where, _, names in os.walk(folder) for name in names)
    return [Path(each) for each in sorted(found) if each.endswith(".jsonl") and "/rollout-" in each]


def rollout_of(home: Path, thread: str) -> Path | None:
    """Return the rollout of a thread that is not archived; None where it has none."""
    return next((each for each in rollouts(home / "sessions") if each.name.endswith(f"{thread}.jsonl")), None)
