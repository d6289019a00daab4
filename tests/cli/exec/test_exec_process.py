"""`app-server exec` as a process with its server inside: accidental output, its end, and its leftovers."""

from __future__ import annotations

import io
import json
import os
import signal
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from anyio.abc import Process
from anyio.streams.text import TextReceiveStream

from app_server import in_process
from app_server.cli.exec import exec_run
from app_server.cli.exec.exec_report import TextReport
from app_server.cli.exec.exec_run import reported_status
from tests.cli.exec.test_exec_command import options_of
from tests.support.library import serving_model
from tests.support.processes import alive, descendants
from tests.support.program import PYTHON, SCRIPT
from tests.support.scripted_model import Reply, ScriptedModel, reply, says, script
from tests.support.waiting import until
from tests.support.world import WHOLE_SCENARIO, make_folders

pytestmark = [pytest.mark.scenario, pytest.mark.anyio]

NOISE = """\
import os, sys

def hook(event, arguments):
    if event == "import" and arguments[0] == "httpcore2":
        print("stray print", flush=True)
        os.write(1, b"stray write\\n")

sys.addaudithook(hook)
"""


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@asynccontextmanager
async def started(root: Path, *replies: Reply, path: Path | None = None) -> AsyncIterator[Process]:
    """Start `exec --notifications` in the workspace, with modules of `path`."""
    make_folders(root)
    with anyio.fail_after(WHOLE_SCENARIO):
        async with serving_model(ScriptedModel(list(replies)), root, {}) as environment:
            more = {} if path is None else {"PYTHONPATH": str(path)}
            process = await anyio.open_process(
                (SCRIPT, "exec", "--notifications", "-s", "danger-full-access", "hi"),
                env={**environment, **more},
                cwd=root / "workspace",
                stdin=-3,
            )
            async with process:
                yield process


async def said(process: Process) -> tuple[list[str], str]:
    """Return the methods on stdout and all of stderr."""
    out, errors = "", ""

    async def listen() -> None:
        nonlocal errors
        assert process.stderr is not None
        async for piece in TextReceiveStream(process.stderr):
            errors += piece

    assert process.stdout is not None
    async with anyio.create_task_group() as group:
        group.start_soon(listen)
        async for piece in TextReceiveStream(process.stdout):
            out += piece
    return [json.loads(line)["method"] for line in out.splitlines()], errors


@pytest.mark.process
async def test_what_is_printed_by_accident_does_not_reach_stdout(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(NOISE)
    async with started(tmp_path, reply(says("one")), path=tmp_path) as process:
        methods, errors = await said(process)
        assert await process.wait() == 0, errors
    assert (methods[0], methods[-1]) == ("thread/started", "turn/completed")
    assert {"stray print", "stray write"} <= set(errors.splitlines())


@pytest.mark.process
async def test_no_module_comes_from_the_workspace(tmp_path: Path) -> None:
    """Commands of the turn may write there, and a module is imported when it is first used."""
    workspace = tmp_path / "workspace"
    make_folders(tmp_path)
    for name in ("httpcore2", "tree_sitter", "jsonschema"):
        (workspace / f"{name}.py").write_text(f"open({str(tmp_path / 'taken')!r}, 'w')")
    model = ScriptedModel([reply(script("true")), reply(says("one"))])
    async with serving_model(model, tmp_path, {}) as environment:
        command = (PYTHON, "-m", "app_server", "exec", "hi")
        done = await anyio.run_process(command, env=environment, cwd=workspace, check=False)
    assert (done.returncode, done.stdout) == (0, b"one\n"), done.stderr
    assert not (tmp_path / "taken").exists()


@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
async def test_nothing_outlives_it(number: signal.Signals, tmp_path: Path) -> None:
    begun = tmp_path / "workspace" / "begun"
    busy = reply(script("sleep 1000 & setsid sleep 1000 & echo > begun; sleep 1000"))
    async with started(tmp_path, busy) as process:
        await until(begun.exists)
        children = descendants(process.pid)
        assert children
        process.send_signal(number)
        methods, errors = await said(process)
        status = await process.wait()
    assert alive(children) == []
    if number is signal.SIGKILL:
        assert status == -signal.SIGKILL
        return
    assert (status, errors) == (130, "")
    assert methods[0] == "thread/started"
    [stored] = (tmp_path / "home").glob("sessions/**/rollout-*.jsonl")
    assert "turn_aborted" in stored.read_text()


def test_a_process_that_does_not_come_to_its_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    statuses: list[int] = []
    ended = threading.Event()

    def end(status: int) -> None:
        statuses.append(status)
        ended.set()

    monkeypatch.setattr(exec_run, "LEAVES_WITHIN", 0.0)
    monkeypatch.setattr(os, "_exit", end)
    exec_run.leave_soon(signal.SIGTERM)
    assert ended.wait(10)
    assert statuses == [143]


async def test_a_server_that_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(*_: object) -> None:
        raise RuntimeError("out of luck")

    monkeypatch.setattr(in_process, "serve", fails)
    make_folders(tmp_path)
    stderr = io.StringIO()
    report = TextReport(io.StringIO(), stderr)
    assert await reported_status(options_of(tmp_path, "hi"), report, stderr, {}) == 1
    assert stderr.getvalue() == "app-server exec: the server failed: RuntimeError('out of luck')\n"
