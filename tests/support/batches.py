"""Fixtures of batches: tasks, repositories, a scripted model whose answer depends on the request, and the batch command
with its workers in this process or in processes of their own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest

from app_server.cli.batch import batch_command
from app_server.cli.batch.batch_command import run_plan
from app_server.cli.batch.local import Workers
from app_server.cli.batch.worker import work
from app_server.cli.parse_command import parse
from app_server.client.command_line import InvalidCommandLine
from app_server.engine.support.engine_errors import ConfigError
from app_server.server.transport.memory import MemoryTransport, memory_pair
from app_server_protocol.encoding import Json
from app_server_protocol.framing import Transport
from tests.support.library import serving_model
from tests.support.program import SCRIPT
from tests.support.scripted_model import ModelRequest, Reply, ScriptedModel, failure, reply, says, script
from tests.support.world import PATH, make_folders

Author = Callable[[ModelRequest], Reply]
"""Function that answers a request of any task."""

WHOLE_BATCH = 120.0


def agrees(request: ModelRequest) -> Reply:
    """Answer every request with the same word."""
    return reply(says("done"))


def writes(command: str, then: str = "done") -> Author:
    """Return a model that runs a command and then sends a message."""
    return lambda request: reply(says(then)) if request.outputs() else reply(script(command))


def refuses(status: int) -> Author:
    """Return a model that fails every request with this status."""
    return lambda request: failure(status, {"error": {"message": "no"}})


class MemoryWorkers(Workers):
    """Batch workers that run in this process."""

    def __init__(self, count: int, environment: Mapping[str, str]) -> None:
        super().__init__(count, self.connect)
        self._environment = environment
        self.scopes: list[anyio.CancelScope] = []
        """Cancel scopes of all workers that were ever started. Cancelling one ends its worker in the middle of its
        work.
        """

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Transport]:
        ours, its = memory_pair()
        async with anyio.create_task_group() as group:
            self.scopes.append(group.cancel_scope)
            group.start_soon(self._work, its)
            yield ours
            ours.close()
            group.cancel_scope.cancel()

    async def _work(self, its: MemoryTransport) -> None:
        await work(its, self._environment, lambda: None, "here")
        its.close()


@dataclass(slots=True)
class BatchDone:
    """Result of one run of the command."""

    status: int
    stdout: str
    stderr: str
    out: Path

    @property
    def lines(self) -> list[Json]:
        path = self.out / "results.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    @property
    def results(self) -> dict[str, Json]:
        """Results by task id; each id has exactly one line."""
        found = {line["id"]: line for line in self.lines}
        assert len(found) == len(self.lines), "a task has two results"
        return found

    def files(self) -> bytes:
        """Return the contents of all files in the folder, joined."""
        return b"\n".join(path.read_bytes() for path in sorted(self.out.rglob("*")) if path.is_file())


@dataclass(slots=True)
class BatchWorld:
    root: Path
    monkeypatch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]
    author: Author = agrees
    requests: list[ModelRequest] = field(default_factory=list)
    environment: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        make_folders(self.root)

    @property
    def out(self) -> Path:
        return self.root / "out"

    @property
    def home(self) -> Path:
        return self.root / "home"

    def write(self, *tasks: Json | str) -> Path:
        """Write a file of tasks. A task that is a string becomes a line as it is."""
        path = self.root / "tasks.jsonl"
        lines = [
            each if isinstance(each, str) else json.dumps({"prompt": f"Do {each['id']}.", **each})
            for each in tasks
        ]
        path.write_text("".join(f"{line}\n" for line in lines))
        return path

    def git(self, folder: Path, *arguments: str) -> str:
        identity = ("-c", "user.name=Test", "-c", "user.email=test@example.com", "-c", "commit.gpgsign=false")
        environment = {
            "PATH": PATH,
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_CONFIG_NOSYSTEM": "1",
            "HOME": str(self.root),
        }
        command = ("git", "-C", str(folder), *identity, *arguments)
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, check=True
        ).stdout.strip()

    def repository(self, name: str = "repo", files: Mapping[str, str] = {"a.txt": "one\n"}) -> Path:
        """Make a repository with one commit."""
        folder = self.root / name
        folder.mkdir()
        for path, text in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
        self.git(folder, "init", "-q", "-b", "main")
        self.git(folder, "add", "-A")
        self.git(folder, "commit", "-q", "-m", "start")
        return folder

    @asynccontextmanager
    async def serving(self, config: Mapping[str, Json] = {}, tables: str = "") -> AsyncIterator[None]:
        """Serve the model while the block runs."""

        def aside(body: Json) -> Reply:
            request = ModelRequest("", {}, body)
            self.requests.append(request)
            return self.author(request)

        model = ScriptedModel(aside=aside)
        async with serving_model(model, self.root, config, tables) as self.environment:
            yield

    async def run(
        self, *arguments: str, workers: Workers | None = None, jobs: int = 4, **config: Any
    ) -> BatchDone:
        """Run the command with its workers in this process, on the tasks and the folder of this world."""
        async with self.serving(**config):
            return await self.command(*arguments, workers=workers, jobs=jobs)

    async def command(self, *arguments: str, workers: Workers | None = None, jobs: int = 4) -> BatchDone:
        """Run the command while the scripted model is served."""
        verb = arguments[0] if arguments and arguments[0] in ("retry", "status", "merge") else ""
        words = (
            list(arguments[1:]) if verb else [str(self.root / "tasks.jsonl"), "-o", str(self.out), *arguments]
        )
        if verb in ("", "retry"):
            words += ["--jobs", str(jobs)]
        args = parse(["batch", *filter(None, [verb]), *words])
        self.monkeypatch.setattr(os, "environ", dict(self.environment))
        try:
            with anyio.fail_after(WHOLE_BATCH):
                status = await self._status(args, workers)
        finally:
            self.monkeypatch.undo()
        captured = self.capsys.readouterr()
        return BatchDone(status, captured.out, captured.err, self.out)

    async def _status(self, args: Any, workers: Workers | None) -> int:
        try:
            match args.command:
                case "batch retry":
                    plan = batch_command.retried(args)
                case "batch":
                    plan = batch_command.planned(args, self.environment)
                case _:
                    return batch_command.run_batch(args)
            return await run_plan(plan, workers or MemoryWorkers(2, self.environment))
        except (InvalidCommandLine, ConfigError) as error:
            sys.stderr.write(f"app-server batch: {error}\n")
            return 2

    def process(self, *arguments: str) -> Sequence[str]:
        """Return the command line of the installed program."""
        return (SCRIPT, "batch", str(self.root / "tasks.jsonl"), "-o", str(self.out), *arguments)

    def left_over(self) -> list[str]:
        """Return what a batch must not leave behind when it has ended: checkouts and locks that are held."""
        work = self.out / ".work"
        return [str(path) for path in work.rglob("*")] if work.exists() else []
