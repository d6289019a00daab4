"""`app-server exec`: what it prints, and its exit status, as scripts see them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TypeVar

import anyio.to_thread
import pytest

from app_server.cli import parser
from app_server.headless.exec_options import InvalidCommandLine, exec_options
from tests.support.scripted_model import failure, reply, runs, says
from tests.support.world import SCRIPT, MakeWorld, World, worlds_in

pytestmark = pytest.mark.anyio

T = TypeVar("T")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def world(tmp_path: Path) -> MakeWorld:
    return worlds_in(tmp_path)


async def run(w: World, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    def play() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            (SCRIPT, "exec", *arguments),
            cwd=w.workspace,
            env=dict(w.environment),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return await anyio.to_thread.run_sync(play)


async def test_the_final_message_alone_is_on_stdout(world: MakeWorld) -> None:
    replies = (reply(runs("echo", "seen by the model")), reply(says("It works.")))
    async with world(*replies, initialize=False) as w:
        done = await run(w, "does", "it", "work?", "-o", "last.txt")
        assert (done.returncode, done.stdout) == (0, "It works.\n")
        assert "$ echo 'seen by the model'" in done.stderr
        assert (w.workspace / "last.txt").read_text() == "It works."
        assert "does it work?" in "\n".join(w.model_saw())


async def test_notifications_are_lines_of_json_and_the_prompt_may_come_from_stdin(world: MakeWorld) -> None:
    async with world(reply(says("hello")), initialize=False) as w:
        done = await run(w, "--json", "-", stdin="say hello")
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        methods = [line["method"] for line in lines]
        assert done.returncode == 0
        assert methods[:2] == ["thread/started", "turn/started"]
        assert methods[-1] == "turn/completed"
        items = [line["params"]["item"]["type"] for line in lines if line["method"] == "item/completed"]
        assert items == ["userMessage", "agentMessage"]


async def test_a_failed_turn_is_a_failed_command(world: MakeWorld) -> None:
    async with world(failure(400, {"error": {"message": "no such model"}}), initialize=False) as w:
        done = await run(w, "hi")
        assert (done.returncode, done.stdout) == (1, "")
        assert "no such model" in done.stderr


async def test_what_does_not_match_the_schema_fails(world: MakeWorld) -> None:
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
    replies = (reply(says('{"ok": true}')), reply(says('{"ok": "yes"}')))
    async with world(*replies, initialize=False, files={"schema.json": json.dumps(schema)}) as w:
        assert (await run(w, "--output-schema", "schema.json", "hi")).returncode == 0
        done = await run(w, "--output-schema", "schema.json", "hi")
        assert done.returncode == 1
        assert "does not match the output schema at $.ok" in done.stderr


async def test_a_stored_thread_is_gone_on_with(world: MakeWorld) -> None:
    async with world(reply(says("one")), reply(says("two")), initialize=False) as w:
        await run(w, "first")
        done = await run(w, "--resume-last", "second")
        assert done.stdout == "two\n"
        assert len(w.rollouts()) == 1


def test_nobody_is_asked_unless_the_command_line_says_so(tmp_path: Path) -> None:
    args = parser().parse_args(["exec", "hi", "-s", "read-only"])
    options = exec_options(args, stdin=open("/dev/null"), cwd=tmp_path)  # noqa: SIM115
    assert options.thread == {"cwd": tmp_path, "approval_policy": "never", "sandbox": "read-only"}


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--cd", "nowhere", "hi"], "is not a folder"),
        (["-i", "none.png", "hi"], "is not a file"),
        (["--output-schema", "none.json", "hi"], "none.json"),
        ([], "expected a prompt"),
    ],
)
def test_a_command_line_that_cannot_be_used_says_what_was_expected(
    tmp_path: Path, arguments: list[str], problem: str
) -> None:
    args = parser().parse_args(["exec", *arguments])
    with pytest.raises(InvalidCommandLine, match=problem), open("/dev/null") as nothing:
        exec_options(args, nothing, tmp_path)
