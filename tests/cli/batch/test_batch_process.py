"""`app-server batch` as processes: killed at any moment and started again, interrupted; its leftovers, and the modules
that it loads.
"""

import json
import os
import random
import signal
import subprocess
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path

import anyio
import pytest
from anyio.abc import Process

from tests.support.batches import BatchWorld, writes
from tests.support.loading import modules_loaded_by
from tests.support.processes import children, descendants, marked
from tests.support.program import SCRIPT
from tests.support.scripted_model import ModelRequest, Reply, reply, says, script
from tests.support.waiting import until
from tests.support.world import MARK

pytestmark = [pytest.mark.anyio, pytest.mark.process]

LONG = os.environ.get("FAULTS") == "long"
KILLS = 50 if LONG else 3
TASKS = 1000 if LONG else 12
"""Number of tasks: so many that the batch is killed KILLS times before it ends."""
VICTIMS = (b"", b"app_server.cli.batch.worker", b"app_server.engine.sandbox.launcher")
"""Processes that are killed first, by a text of their command line. If it is empty, only the coordinator is killed,
which always comes last.
"""


@asynccontextmanager
async def started(batch: BatchWorld, *options: str) -> AsyncIterator[Process]:
    """Start the program in a session of its own, with its output in a file."""
    with (batch.root / "stderr").open("ab") as errors:
        process = await anyio.open_process(
            batch.process(*options),
            stdin=-3,
            stdout=-3,
            stderr=errors,
            env=batch.environment,
            cwd=batch.root,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        with anyio.CancelScope(shield=True):
            if process.returncode is None:
                process.kill()
            await process.aclose()


def said(batch: BatchWorld) -> str:
    return (batch.root / "stderr").read_text()


def lines(batch: BatchWorld) -> list[str]:
    """Return the ids of the complete lines of results."""
    path = batch.out / "results.jsonl"
    whole = path.read_bytes().rpartition(b"\n")[0] if path.exists() else b""
    return [json.loads(line)["id"] for line in whole.splitlines()]


async def nothing_is_left(batch: BatchWorld) -> None:
    await until(lambda: not marked(f"{MARK}={batch.root}"), "all processes have ended")
    assert batch.left_over() == []
    assert not list(batch.out.rglob(".staged-*"))


def works(request: ModelRequest) -> Reply:
    """Change a file by a command, repeat the command if it was killed, and then send a message."""
    changed = any("changed" in output for output in request.outputs().values())
    command = script("echo x >> a.txt; sleep 0.1; echo changed", call_id=f"c{len(request.outputs())}")
    return reply(says("done")) if changed else reply(command)


async def test_a_batch_that_is_killed_again_and_again_gives_each_task_one_result(batch: BatchWorld) -> None:
    repository = batch.repository(files={f"d{n}/f.txt": "x\n" for n in range(20)} | {"a.txt": "one\n"})
    batch.author = works
    tasks = [{"id": f"t{n}", "repo": str(repository)} for n in range(TASKS)]
    batch.write(*tasks)
    chance = random.Random(5)
    asked_with_result = kills = 0
    async with batch.serving():
        for kill in range(KILLS):
            done_before = set(lines(batch))
            asked_before = len(batch.requests)
            # each start follows a kill at once, while the workers die
            async with started(batch, "--jobs", "4", "--retries", "1000") as process:
                with anyio.move_on_after(chance.uniform(0.2, 2.5 if LONG else 1.5)):
                    await process.wait()
                whose = VICTIMS[kill % len(VICTIMS)]
                if whose and (found := [pid for pid in descendants(process.pid) if runs(pid, whose)]):
                    os.kill(chance.choice(found), signal.SIGKILL)
                    with anyio.move_on_after(1):
                        await process.wait()
                if process.returncode is None:
                    process.kill()
                    kills += 1
                assert await process.wait() in (0, -signal.SIGKILL), said(batch)
            texts = [request.texts()[-1] for request in batch.requests[asked_before:] if request.texts()]
            asked_with_result += sum(
                text.removeprefix("Do ").removesuffix(".") in done_before for text in texts
            )
        async with started(batch, "--jobs", "4", "--retries", "1000") as process:
            assert await process.wait() == 0, said(batch)
    assert Counter(lines(batch)) == Counter(task["id"] for task in tasks)
    assert kills == KILLS or not LONG, "it ended too early"
    assert asked_with_result == 0, "what had a result is not asked again"
    assert len(list((batch.out / "patches").glob("*.diff"))) == TASKS
    assert batch.git(repository, "worktree", "list").count("\n") == 0
    await nothing_is_left(batch)


async def begun(batch: BatchWorld, count: int) -> None:
    await until(lambda: len(batch.requests) >= count, "the tasks have begun")


async def test_ctrl_c_lets_what_runs_come_to_its_end_and_the_second_one_interrupts_it(
    batch: BatchWorld,
) -> None:
    gate = batch.root / "gate"
    batch.author = writes(f"while ! test -e {gate}; do sleep 0.05; done")
    batch.write(*({"id": f"t{n}"} for n in range(6)))
    async with batch.serving():
        async with started(batch, "--jobs", "2") as process:
            await begun(batch, 2)
            process.send_signal(signal.SIGINT)
            await until(lambda: "nothing new is started" in said(batch))
            gate.touch()
            assert await process.wait() == 130
        assert len(lines(batch)) == 2
        assert "interrupted: 2 of 6 tasks completed, 4 are left" in said(batch)
        gate.unlink()
        asked = len(batch.requests)
        async with started(batch, "--jobs", "2") as process:
            await begun(batch, asked + 2)
            process.send_signal(signal.SIGTERM)
            await until(lambda: said(batch).count("nothing new is started") == 2)
            process.send_signal(signal.SIGTERM)
            with anyio.fail_after(60):
                assert await process.wait() == 130
        assert len(lines(batch)) == 2, "what is interrupted is no result"
        stored = [path.read_text() for path in batch.out.glob("homes/*/sessions/**/*.jsonl")]
        assert sum("turn_aborted" in text for text in stored) == 2
        gate.touch()
        assert (await batch.command()).status == 0
    results = [json.loads(line) for line in (batch.out / "results.jsonl").read_text().splitlines()]
    assert sorted(Counter(line["attempts"] for line in results).items()) == [(1, 4), (2, 2)]
    await nothing_is_left(batch)


def runs(pid: int, what: bytes) -> bool:
    try:
        return what in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


async def test_the_third_ctrl_c_ends_at_once(batch: BatchWorld) -> None:
    """The worker hangs, so that its task cannot be interrupted."""
    batch.author = lambda request: reply(script("sleep 1000"))
    batch.write({"id": "a"})
    async with batch.serving(), started(batch, "--jobs", "1") as process:
        await begun(batch, 1)
        # A worker's child has the worker's command line until it executes its own program.
        workers = [pid for pid in children(process.pid) if runs(pid, b"app_server.cli.batch.worker")]
        try:
            for pid in workers:
                os.kill(pid, signal.SIGSTOP)
            for words in ("nothing new is started", "what runs is interrupted"):
                process.send_signal(signal.SIGINT)
                await until(lambda words=words: words in said(batch))  # type: ignore[misc]
            process.send_signal(signal.SIGINT)
            assert await process.wait() == 130
        finally:
            for pid in workers:
                os.kill(pid, signal.SIGCONT)
    assert len(workers) == 1
    assert "are left" not in said(batch), "it has ended nothing in good order"
    await until(lambda: not marked(f"{MARK}={batch.root}"), "all processes have ended")


async def test_the_batch_goes_on_where_nobody_reads_what_happens_any_more(batch: BatchWorld) -> None:
    batch.write(*({"id": f"t{n}"} for n in range(4)))
    reading, writing = os.pipe()
    os.close(reading)
    async with batch.serving():
        done = await anyio.run_process(
            batch.process("--json"), stdout=writing, env=batch.environment, cwd=batch.root, check=False
        )
    os.close(writing)
    assert done.returncode == 0, done.stderr
    assert sorted(lines(batch)) == [f"t{n}" for n in range(4)]
    assert b"what happens is told no more: Broken pipe" in done.stderr


async def test_a_key_is_in_no_argument_of_a_process_but_the_command_that_the_user_typed(
    batch: BatchWorld,
) -> None:
    key, typed, seen = "s3cr3t-0123456789", "s3cr3t-of-a-setting", dict[int, bytes]()

    def author(request: ModelRequest) -> Reply:
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                seen[int(path.parent.name)] = path.read_bytes()
            except OSError:
                continue
        return reply(says("done"))

    batch.author = author
    batch.write({"id": "a"})
    async with batch.serving(tables='env_key = "BATCH_PROVIDER_KEY"\n'):
        batch.environment = {**batch.environment, "BATCH_PROVIDER_KEY": key}
        server = f'mcp_servers.e={{command="true",enabled=false,env={{TOKEN="{typed}"}}}}'
        async with started(batch, "-c", server) as process:
            assert await process.wait() == 0, said(batch)
    assert any(b"app_server.cli.batch.worker" in each for each in seen.values())
    assert not any(key.encode() in each for each in seen.values())
    assert {pid for pid, each in seen.items() if typed.encode() in each} == {process.pid}


async def test_a_first_task_of_a_large_batch_that_is_nearly_done_comes_soon(batch: BatchWorld) -> None:
    """A coordinator reads a hundred thousand results by lines, and checks only the unfinished tasks."""
    batch.write({"id": "first"})
    async with batch.serving():
        await batch.command()
        line = (batch.out / "results.jsonl").read_text()
        raw = "".join(
            json.dumps({"id": f"t{n}", "prompt": "x", "repo": "/nowhere"}) + "\n" for n in range(20_000)
        )
        (batch.root / "tasks.jsonl").write_text(raw + json.dumps({"id": "new", "prompt": "x"}) + "\n")
        (batch.out / "results.jsonl").write_text(
            "".join(line.replace('"id":"first"', f'"id":"t{n}"') for n in range(20_000))
        )
        done = await batch.command("--allow-changed")
    assert done.status == 0, done.stderr
    assert len(done.results) == 20_001


@pytest.mark.skipif(find_spec("ray") is not None, reason="ray is installed")
def test_a_demo_on_ray_says_what_to_install(tmp_path: Path) -> None:
    home = {"CODEX_HOME": str(tmp_path / "home"), "HOME": str(tmp_path)}
    done = subprocess.run(
        (SCRIPT, "batch", "--demo", "--ray="),
        capture_output=True,
        text=True,
        env=dict(os.environ) | home,
        cwd=tmp_path,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "--ray needs ray: pip install" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_server_over_stdio_loads_nothing_of_it() -> None:
    loaded = modules_loaded_by(
        "import app_server.cli.dispatch, "
        "app_server.server.bootstrap.full_server, app_server.engine.engine\n"
        "import app_server.server.model_clients, app_server.server.engine_adapters\n"
        "from app_server.server.apis.v2.v2_routes import HANDLERS; HANDLERS.load_for('thread/start')\n"
        "import app_server.engine.session.operations, app_server.engine.http.http_transport"
    )
    assert {
        name for name in loaded if name.startswith(("app_server.cli.batch", "app_server.cli.commands", "ray"))
    } == set()


def test_a_coordinator_has_no_server_in_it() -> None:
    loaded = modules_loaded_by("import app_server.cli.batch.batch_command")
    heavy = (
        "app_server.server.composition",
        "app_server.in_process",
        "app_server.cli.demo.workspace",
        "jsonschema",
        "ray",
        "rich",
    )
    assert {name for name in loaded if name in heavy} == set()
