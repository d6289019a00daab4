"""The examples of docs/batch.md, exactly as on the page, with a scripted model."""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import anyio
import pytest

from app_server_protocol.encoding import Json
from tests.docs.markdown_blocks import ROOT, Block, blocks
from tests.support.batches import BatchWorld
from tests.support.scripted_model import ModelRequest, Reply, patches, reply, says, script

pytestmark = [pytest.mark.anyio, pytest.mark.process]

PAGE = ROOT / "docs" / "batch.md"
FIRST, OWN, REVIEW, SCHEMA, MIGRATION, BENCHMARK = (each for each in blocks(PAGE) if each.mark is not None)

GREET = '#!/bin/sh\necho "Hello, $2!"\n'
CHECK = '#!/bin/sh\ntest "$(sh greet.sh World)" = "Hello, World!"\n'
REPAIR = """\
*** Begin Patch
*** Update File: greet.sh
@@
-echo "Hello, $2!"
+echo "Hello, $1!"
*** End Patch"""


async def run(batch: BatchWorld, block: Block, of: Mapping[str, str] | None = None) -> str:
    """Run a block of the page as a shell does, in a folder that has the examples; return its output. `of` replaces the
    environment of the world.
    """
    if not (batch.root / "examples").exists():
        (batch.root / "examples").symlink_to(ROOT / "examples")
    bin = Path(sys.executable).parent
    environment = {**(of or batch.environment), "PATH": f"{bin}{os.pathsep}{batch.environment['PATH']}"}
    command = ("bash", "-euo", "pipefail", "-c", block.text)
    done = await anyio.run_process(command, env=environment, cwd=batch.root, stderr=None, check=False)
    assert done.returncode == 0, str(block)
    return done.stdout.decode()


def results(folder: Path) -> dict[str, Json]:
    lines = (folder / "results.jsonl").read_text().splitlines()
    return {result["id"]: result for result in map(json.loads, lines)}


async def test_a_first_batch_and_one_with_a_model_of_ones_own(batch: BatchWorld) -> None:
    home = batch.root / "of a new user"
    home.mkdir()
    new = {name: str(home) for name in ("HOME", "TMPDIR")}
    async with batch.serving():
        assert (await run(batch, FIRST, new)).startswith("10 tasks, 0 left, 0 running; done: 10 completed\n")
        await run(batch, OWN)
    assert results(batch.root / "results")["hello"]["finalMessage"] == "done"
    found = results(batch.root / "out")
    assert len(found) == 10
    repaired = [result for result in found.values() if result["check"] is not None]
    assert [result["check"]["exitCode"] for result in repaired] == [0] * 5
    assert "$1!" in (batch.root / "out" / repaired[0]["patch"]).read_text()
    assert not list(home.glob("app-server-demo-*"))


async def test_the_review_of_changed_files(batch: BatchWorld) -> None:
    batch.git(batch.root, "init", "-q", "-b", "main")
    (batch.root / "a.py").write_text("old\n")
    batch.git(batch.root, "add", "a.py")
    batch.git(batch.root, "commit", "-qm", "start")
    batch.git(batch.root, "checkout", "-qb", "topic")
    for name in ("a.py", "b.py"):
        (batch.root / name).write_text("new\n")
    batch.git(batch.root, "add", "a.py", "b.py")
    batch.git(batch.root, "commit", "-qm", "change")
    (batch.root / "schema.json").write_text(SCHEMA.text)
    batch.author = lambda request: reply(says('{"problems": ["no test"]}'))
    async with batch.serving():
        await run(batch, REVIEW)
    found = results(batch.root / "review")
    assert {id: result["output"] for id, result in found.items()} == {
        "a.py": {"problems": ["no test"]},
        "b.py": {"problems": ["no test"]},
    }


async def test_the_migration_of_many_repositories(batch: BatchWorld) -> None:
    (batch.root / "repositories").mkdir()
    for name in ("one", "two", "three"):
        batch.repository(f"repositories/{name}", {"greet.sh": GREET, "check.sh": CHECK})

    def author(request: ModelRequest) -> Reply:
        return reply(says("Done.")) if request.outputs() else reply(patches(REPAIR))

    batch.author = author
    async with batch.serving():
        await run(batch, MIGRATION)
    found = results(batch.root / "migration")
    assert {result["status"] for result in found.values()} == {"completed"}
    for name in ("one", "two", "three"):
        assert "$1" in (batch.root / "repositories" / name / "greet.sh").read_text()


async def test_the_benchmark(batch: BatchWorld) -> None:
    repository = batch.repository("task", {"greet.sh": GREET, "check.sh": CHECK})
    tasks = [
        {
            "id": f"{split}-{n}",
            "prompt": f"Repair it, {split}.",
            "repo": str(repository),
            "check": ["sh", "check.sh"],
            "meta": {"split": split},
        }
        for split in ("dev", "test")
        for n in range(2)
    ]
    (batch.root / "benchmark.jsonl").write_text("".join(json.dumps(task) + "\n" for task in tasks))

    def author(request: ModelRequest) -> Reply:
        if request.outputs():
            return reply(says("Done."))
        return reply(patches(REPAIR) if "dev" in request.texts()[-1] else script("true"))

    batch.author = author
    async with batch.serving():
        text = BENCHMARK.text.replace("300\n", "300 || true\n")  # some tasks are not solved
        shown = await run(batch, Block(BENCHMARK.page, BENCHMARK.line, "sh", text, None))
    assert shown == "dev: 2 of 2 solved\ntest: 0 of 2 solved\n"
