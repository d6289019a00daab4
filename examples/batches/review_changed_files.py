"""A task for each file that was changed: `python review_changed_files.py REPOSITORY [BRANCH] > tasks.jsonl`"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path


def tasks(repository: Path, branch: str) -> list[dict[str, object]]:
    command = ("git", "-C", str(repository), "diff", "--name-only", "--diff-filter=d", f"{branch}...HEAD")
    changed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return [
        {
            "id": name,
            "prompt": f"Review {name} for bugs and missing tests. The change: `git diff {branch} -- {name}`.",
            "repo": str(repository),
            "ref": "HEAD",
            "settings": {"sandbox": "read-only"},
            "budget": {"requests": 20, "seconds": 600},
        }
        for name in changed
    ]


if __name__ == "__main__":
    for task in tasks(Path(sys.argv[1]).resolve(), sys.argv[2] if len(sys.argv) > 2 else "main"):
        print(json.dumps(task))
