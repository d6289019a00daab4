"""The programs of examples/, as a user runs them, against the scripted model."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from anyio.abc import Process
from anyio.streams.text import TextReceiveStream

from tests.support.library import serving_model
from tests.support.scripted_model import (
    Hold,
    Reply,
    ScriptedModel,
    begins_to_say,
    failure,
    patches,
    reply,
    runs,
    says,
    word,
)

pytestmark = [pytest.mark.anyio, pytest.mark.process]

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PATIENCE = 240.0
"""Seconds for a program and its server; on a machine that does much else both are slow to start."""

PATCH = "*** Begin Patch\n*** Add File: new.txt\n+hello\n*** End Patch\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for folder in ("home", "workspace", "user"):
        (tmp_path / folder).mkdir()
    return tmp_path


async def run_example(
    root: Path, name: str, *arguments: str, replies: tuple[Reply, ...], typed: str = ""
) -> subprocess.CompletedProcess[bytes]:
    async with serving_model(ScriptedModel(list(replies)), root, {}) as environment:
        with anyio.fail_after(PATIENCE):
            return await anyio.run_process(
                [sys.executable, str(EXAMPLES / name), *arguments],
                input=typed.encode(),
                env=environment,
                cwd=root / "workspace",
                check=False,
            )


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_an_example_is_short_and_says_what_it_is_for(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) < 60
    assert ast.get_docstring(ast.parse(text))


async def test_one_turn(root: Path) -> None:
    replies = (
        reply(begins_to_say(), word("Let me "), word("look."), says("Let me look."), runs("echo", "hi")),
        reply(says("It says hi."), input=20, output=10),
    )
    done = await run_example(root, "one_turn.py", "What is here?", replies=replies)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.decode().startswith("Let me look.\n[echo hi: exit code 0]")
    assert done.stderr == b"45 tokens\n"


async def test_approvals(root: Path) -> None:
    replies = (
        reply(runs("touch", "yes")),
        reply(runs("touch", "no", call_id="c2")),
        reply(patches(PATCH, "c3")),
        reply(says("Done.")),
    )
    done = await run_example(root, "approvals.py", "Go.", replies=replies, typed="y\nn\ny\n")
    assert done.returncode == 0, done.stderr.decode()
    shown = done.stdout.decode()
    assert "Run `touch yes` in" in shown
    assert "--- add " in shown
    assert shown.endswith("Done.\n")
    assert sorted(path.name for path in (root / "workspace").iterdir()) == ["new.txt", "yes"]


async def test_a_batch_with_progress(root: Path) -> None:
    folders = [root / name for name in ("a", "b", "c")]
    for folder in folders:
        folder.mkdir()
    replies = (reply(says("Fine.")), reply(says("Fine.")), failure(400, {"error": {"message": "too much"}}))
    done = await run_example(root, "batch.py", "Look.", *map(str, folders), replies=replies)
    assert done.returncode == 1, done.stderr.decode()
    lines = done.stdout.decode().splitlines()
    assert [line.split(" ")[0] for line in lines] == ["[1/3]", "[2/3]", "[3/3]"]
    assert {Path(line.split(" ")[1].rstrip(":")) for line in lines} == set(folders)
    assert sorted("FAILED" in line for line in lines) == [False, False, True]


async def test_structured_output(root: Path) -> None:
    findings = [
        {"line": 7, "severity": "low", "summary": "unused"},
        {"line": 3, "severity": "high", "summary": "wrong"},
    ]
    answer = json.dumps({"findings": findings, "verdict": "Needs work."})
    done = await run_example(root, "structured_output.py", "a.py", replies=(reply(says(answer)),))
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.decode() == "a.py:3: high: wrong\na.py:7: low: unused\nNeeds work.\n"


async def test_the_bot_answers_steers_and_stops(root: Path) -> None:
    hold, endless = Hold(), Hold()
    replies = [
        reply(says("Hello.")),
        reply(begins_to_say(), hold, says("Working.")),
        reply(says("Blue.")),
        reply(begins_to_say(), endless),
    ]
    async with serving_model(ScriptedModel(replies), root, {}) as environment:
        command = [sys.executable, str(EXAMPLES / "bot.py")]
        with anyio.fail_after(PATIENCE):
            async with await anyio.open_process(
                command, env=environment, cwd=root / "workspace", stderr=None
            ) as bot:
                assert await exchange(bot, "hi\n") == "completed: Hello."
                await say(bot, "Paint.\n")
                await hold.reached.wait()
                assert await exchange(bot, "In blue.\n") == "noted"
                hold.release()
                assert await exchange(bot, "") == "completed: Blue."
                await say(bot, "/new\nGo on for ever.\n")
                await endless.reached.wait()
                assert (await exchange(bot, "/stop\n")).startswith("interrupted")
                assert bot.stdin is not None
                await bot.stdin.aclose()
                assert await bot.wait() == 0


async def say(bot: Process, text: str) -> None:
    assert bot.stdin is not None
    await bot.stdin.send(text.encode())


async def exchange(bot: Process, text: str) -> str:
    """What the bot answers, a line."""
    if text:
        await say(bot, text)
    assert bot.stdout is not None
    answer = ""
    stream = TextReceiveStream(bot.stdout)
    while not answer.endswith("\n"):
        answer += await stream.receive()
    return answer.rstrip("\n")
