"""How many tasks of each split are solved: `python score_benchmark.py OUT`, for a batch whose tasks have a `check`."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path


def scores(out: Path) -> dict[str, tuple[int, int]]:
    """Return the solved tasks and all of them, by the split that a task's `meta` names."""
    solved, total = Counter[str](), Counter[str]()
    for line in (out / "results.jsonl").read_text(encoding="utf-8").splitlines():
        result = json.loads(line)
        split = (result["meta"] or {}).get("split", "all")
        total[split] += 1
        solved[split] += result["status"] == "completed"
    return {split: (solved[split], total[split]) for split in sorted(total)}


if __name__ == "__main__":
    for split, (good, all_of_it) in scores(Path(sys.argv[1])).items():
        print(f"{split}: {good} of {all_of_it} solved")
