"""The cost of a task of `app-server batch`, beside one process a task: `exec` of this program and of the reference
under `xargs -P`.

Processor time counts, of the program and of everything that it starts. Other load of the machine changes only the wall
time.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import anyio.to_thread

from benchmarks.compare import REFERENCE_VARIABLE, Say
from benchmarks.figures import Unit, written
from benchmarks.model import PreparedModel
from benchmarks.place import Place, temporary_place
from benchmarks.processes import descendants, most_rss, own_cpu_seconds
from benchmarks.replies import HELLO, Paced
from benchmarks.report import Table

PR_SET_CHILD_SUBREAPER = 36
AT_ONCE = 4
"""Number of tasks that run at once, on all sides."""
OF_EXEC = 40
"""Number of tasks on sides that need a process for each."""
FILES = 2000
"""Number of files of the repository that is checked out."""
WAITING = 100
FINISHED = 100_000


@dataclass(slots=True)
class Cost:
    """Cost of one run. Times are in seconds, memory in MiB."""

    tasks: int
    cpu: float = 0.0
    wall: float = 0.0
    of_parent: float = 0.0
    """Processor time of the process that was started, in seconds."""
    memory: float = 0.0
    """Maximum memory of that process, in MiB."""
    others: float = 0.0
    """Maximum memory of any other process, in MiB."""

    def row(self, name: str) -> tuple[str, ...]:
        return (
            name,
            str(self.tasks),
            written(self.cpu / self.tasks, Unit.SECONDS),
            written(self.wall / self.tasks, Unit.SECONDS),
            f"{100 * self.of_parent / self.cpu:.0f} %",
            f"{self.memory:.0f} MiB",
            f"{self.others:.0f} MiB",
        )


HEAD = (
    "how",
    "tasks",
    "CPU a task",
    "wall a task",
    "CPU of the first process",
    "its memory",
    "largest other",
)


async def table(tasks: int, say: Say) -> Table:
    """Measure all available sides."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # what is orphaned is counted, too
    script = str(Path(sys.executable).with_name("app-server"))
    rows = []
    with temporary_place() as place:
        model = PreparedModel()
        async with model.serving() as url:
            place.configure(url, "read-only")
            batch = (script, "batch", "tasks.jsonl", "--jobs", str(AT_ONCE))
            rows.append((await measured(place, batch, written_tasks(place, tasks), "plain")).row("batch"))
            say("batch: done")
            one = written_tasks(place, tasks, repo=str(repository(place)))
            rows.append(
                (await measured(place, batch, one, "worktrees")).row(f"batch, worktrees of {FILES} files")
            )
            say("batch with worktrees: done")
            place.configure(url, "workspace-write")
            few = max(tasks // 10, 1)
            changing = written_tasks(place, few, repo=str(place.root / "repository"), setup=["touch", "made"])
            cost = await measured(place, batch, changing, "changing")
            rows.append(cost.row("batch, worktrees that are changed"))
            say("batch with worktrees that change: done")
            place.configure(url, "read-only")
            rows.append((await waiting(place, model)).row(f"batch, {WAITING} tasks wait for the model"))
            say("batch that waits: done")
            rows += await processes(place, script, say)
            rows.append((await restart(place, script)).row(f"batch, {FINISHED:,} tasks done and one new"))
    return [HEAD, *rows]


async def processes(place: Place, script: str, say: Say) -> list[tuple[str, ...]]:
    sides: dict[str, Sequence[str]] = {"exec under xargs": (script, "exec")}
    if reference := os.environ.get(REFERENCE_VARIABLE):
        sides["reference's exec under xargs"] = (reference, "exec", "--skip-git-repo-check")
    rows = []
    for name, command in sides.items():
        words = "\n".join(f"task-{n}" for n in range(OF_EXEC)).encode()
        line = ("xargs", "-P", str(AT_ONCE), "-n", "1", *command)
        rows.append((await measured(place, line, OF_EXEC, words=words)).row(name))
        say(f"{name}: done")
    return rows


async def waiting(place: Place, model: PreparedModel) -> Cost:
    """Run many tasks at once that wait for a slow model, in one worker."""
    count = written_tasks(place, WAITING)
    model.otherwise = lambda: Paced((HELLO[: len(HELLO) // 2], HELLO[len(HELLO) // 2 :]), 10.0)
    script = str(Path(sys.executable).with_name("app-server"))
    command = ("taskset", "-c", "0", script, "batch", "tasks.jsonl", "--jobs", str(WAITING))
    try:
        return await measured(place, command, count, "waiting")
    finally:
        model.otherwise = lambda: HELLO


async def restart(place: Place, script: str) -> Cost:
    """Resume a batch that has a hundred thousand results, and a journal of as many attempts."""
    out = place.workspace / "plain"
    first = (out / "results.jsonl").read_text().splitlines()[0]
    id = json.loads(first)["id"]
    attempts = (out / "attempts.jsonl").read_text().splitlines()
    for name, lines in (
        ("results.jsonl", [first]),
        ("attempts.jsonl", [each for each in attempts if json.loads(each)["id"] == id]),
    ):
        with (out / name).open("w") as file:
            for n in range(FINISHED):
                file.writelines(line.replace(json.dumps(id), f'"old-{n}"', 1) + "\n" for line in lines)
    with (place.workspace / "tasks.jsonl").open("w") as tasks:
        tasks.writelines(json.dumps({"id": f"old-{n}", "prompt": "x"}) + "\n" for n in range(FINISHED))
        tasks.write(json.dumps({"id": "new", "prompt": "x"}))
    return await measured(place, (script, "batch", "tasks.jsonl", "--allow-changed"), 1, "plain")


async def measured(
    place: Place, command: Sequence[str], tasks: int, out: str = "", words: bytes = b""
) -> Cost:
    """Run a command to its end; return its cost."""
    line = [*command, "-o", out] if out else list(command)
    return await anyio.to_thread.run_sync(_measured, place, line, tasks, words)


def _measured(place: Place, line: Sequence[str], tasks: int, words: bytes) -> Cost:
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    process = subprocess.Popen(
        line,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=place.environment,
        cwd=place.workspace,
    )
    cost = Cost(tasks)
    with _watched(process.pid, cost):
        said = process.communicate(words)[1]
    cost.wall = time.monotonic() - began
    _reap_orphans()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cost.cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    if process.returncode:
        raise RuntimeError(
            f"{line[0]} ended with {process.returncode}: {said[-500:].decode(errors='replace')}"
        )
    return cost


@contextmanager
def _watched(pid: int, cost: Cost) -> Iterator[None]:
    """Sample the memory of a process, and of its descendants, until the block ends."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.1):
            own = own_cpu_seconds(pid)
            if own == own:  # not NAN: it still exists
                cost.of_parent = max(cost.of_parent, own)
            cost.memory = max(cost.memory, most_rss(pid))
            cost.others = max([cost.others, *map(most_rss, descendants(pid))])

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _reap_orphans() -> None:
    """Wait until the processes that the command has left end by themselves."""
    while True:
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def written_tasks(place: Place, count: int, **more: object) -> int:
    """Write a file of tasks; return their number."""
    lines = (json.dumps({"id": f"t{n}", "prompt": f"task {n}", **more}) for n in range(count))
    (place.workspace / "tasks.jsonl").write_text("\n".join(lines))
    return count


def repository(place: Place) -> Path:
    """Make a repository with many files, packed like most repositories."""
    folder = place.root / "repository"
    for n in range(FILES):
        path = folder / f"d{n % 40}" / f"s{n % 7}" / f"f{n}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"print({n})\n" * 60)
    identity = ("-c", "user.name=Bench", "-c", "user.email=bench@localhost")
    environment: Mapping[str, str] = {**place.environment, "GIT_CONFIG_GLOBAL": "/dev/null"}
    for words in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "files"), ("gc", "-q")):
        subprocess.run(("git", *identity, *words), cwd=folder, env=environment, check=True)
    return folder
