"""Planted bugs: patches of the product in `mutants`. Each has to make some world fail.

A patch is applied to a copy of the product in a temporary folder, never to the checkout. Its first line describes the
bug. A world finds the bug if it fails with the patch and passes without it.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PATCHES = Path(__file__).with_name("mutants")
ROOT = Path(__file__).parents[2]
PRODUCT = ("app_server", "protocol")
NAMES = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}")
MOST = 2000
"""Maximum number of worlds in which a bug has to be found."""


@dataclass(frozen=True, slots=True)
class Find:
    """Result of the search for one bug."""

    name: str
    seed: int | None
    """Seed of the world that failed. None if no world failed."""
    worlds: int
    """Number of worlds that were played, up to the one that failed or in total."""
    seconds: float
    problem: str


def names() -> list[str]:
    """List the names of all planted bugs."""
    return sorted(path.stem for path in PATCHES.glob("*.patch"))


def sentence(name: str) -> str:
    """Return the description of the bug."""
    return (PATCHES / f"{name}.patch").read_text().split("\n", 1)[0]


@contextmanager
def product_with(name: str) -> Iterator[Path]:
    """Yield a copy of the product with this bug. The tests in it are those of the checkout."""
    with tempfile.TemporaryDirectory(prefix="planted-") as folder:
        copy = Path(folder)
        for part in PRODUCT:
            shutil.copytree(ROOT / part, copy / part)
        (copy / "tests").symlink_to(ROOT / "tests")
        apply(name, copy)
        yield copy


def apply(name: str, folder: Path, *, check: bool = False) -> None:
    """Apply a patch in a folder, or only check that it applies. Raises CalledProcessError."""
    command = ["git", "apply", *(["--check"] if check else []), str(PATCHES / f"{name}.patch")]
    alone = os.environ | {"GIT_CEILING_DIRECTORIES": str(folder.parent)}
    subprocess.run(command, cwd=folder, env=alone, check=True, capture_output=True, text=True)


def search(name: str, first: int = 0, most: int = MOST) -> Find:
    """Play worlds with the bug until one fails."""
    begun, seed, last = time.monotonic(), first, first + most - 1
    with product_with(name) as folder:
        while seed <= last:
            failed = _first_failure(folder, seed, last)
            if failed is None:
                break
            seed, problem = failed
            if _first_failure(ROOT, seed, seed) is None:
                return Find(name, seed, seed - first + 1, time.monotonic() - begun, problem)
            seed += 1
    return Find(name, None, most, time.monotonic() - begun, "")


def _first_failure(product: Path, first: int, last: int) -> tuple[int, str] | None:
    """Play worlds in a process of its own; return the first seed that fails, with its problem. None if none fails."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulation.planted_bugs", str(first), str(last)],
        cwd=product,
        env=os.environ
        | {"PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(product / "protocol")},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    if not done.stdout:
        return None
    seed, problem = json.loads(done.stdout)
    return int(seed), str(problem)


def searches(bugs: Sequence[str], first: int, most: int) -> Iterator[Find]:
    """Search for bugs, as many at once as there are processors."""
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        yield from threads.map(lambda name: search(name, first, most), bugs)


HEAD = "| bug | what it does | seed | worlds | seconds | what failed |\n|---|---|---:|---:|---:|---|"


def row(find: Find) -> str:
    """Return a row of the table in docs/reliability.md."""
    seed = "not found" if find.seed is None else str(find.seed)
    problem = NAMES.sub("…", find.problem.split("\n")[0])[:100].replace("|", "\\|")
    return (
        f"| {find.name} | {sentence(find.name)} | {seed} | {find.worlds} | {find.seconds:.0f} | {problem} |"
    )


def main(arguments: Sequence[str]) -> None:
    """Play the worlds from one seed to another; print the first that fails."""
    from tests.simulation.world import play  # noqa: PLC0415 - of the product in the working directory

    for seed in range(int(arguments[0]), int(arguments[1]) + 1):
        outcome = play(seed)
        if outcome.problems:
            print(json.dumps([seed, outcome.problems[0]]))
            return


if __name__ == "__main__":
    main(sys.argv[1:])
