"""The same change in many repositories: `python migrate_repositories.py "Move to Y." REPOSITORY... > tasks.jsonl`

Where a repository has a `check.sh`, it decides whether the change is good.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def task(change: str, repository: Path) -> dict[str, object]:
    made: dict[str, object] = {
        "id": repository.name,
        "prompt": f"{change} Change nothing else.",
        "repo": str(repository),
        "settings": {"sandbox": "workspace-write"},
        "budget": {"tokens": 400_000, "seconds": 1800},
    }
    if (repository / "check.sh").is_file():
        made["check"] = ["sh", "check.sh"]
    return made


if __name__ == "__main__":
    for each in sys.argv[2:]:
        print(json.dumps(task(sys.argv[1], Path(each).resolve())))
