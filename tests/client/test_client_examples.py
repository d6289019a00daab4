"""The programs of examples/ and the code of docs/client.md against the scripted model."""

import ast
import inspect
import io
import json
import re
import runpy
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import anyio
import anyio.to_thread
import pytest
from anyio.abc import Process
from anyio.streams.text import TextReceiveStream

from app_server.client import AppServer
from tests.support.library import connector_to, serving_model, spawn_in_process
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
from tests.support.world import make_folders

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PATIENCE = 240.0
"""Seconds for a program and its server; on a machine that does much else both are slow to start."""

PATCH = "*** Begin Patch\n*** Add File: new.txt\n+hello\n*** End Patch\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    make_folders(tmp_path)
    return tmp_path


@dataclass(slots=True)
class Ran:
    status: int
    stdout: str
    stderr: str


class RunExample(Protocol):
    async def __call__(
        self, name: str, *arguments: str, replies: tuple[Reply, ...], typed: str = ""
    ) -> Ran: ...


@pytest.fixture
def run_example(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> RunExample:
    """Runs a program and its server in this process; what the library does with processes is tested elsewhere."""

    async def run(name: str, *arguments: str, replies: tuple[Reply, ...], typed: str = "") -> Ran:
        monkeypatch.chdir(root / "workspace")
        monkeypatch.setattr("sys.argv", [name, *arguments])
        monkeypatch.setattr("sys.stdin", io.StringIO(typed))
        async with serving_model(ScriptedModel(list(replies)), root, {}) as environment:
            spawn_in_process(monkeypatch, connector_to("in_process", root, environment))
            with anyio.fail_after(PATIENCE):
                status = await anyio.to_thread.run_sync(status_of, EXAMPLES / name)
        captured = capsys.readouterr()
        return Ran(status, captured.out, captured.err)

    return run


def status_of(program: Path) -> int:
    """Its exit status, as the interpreter would have it."""
    try:
        runpy.run_path(str(program), run_name="__main__")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    return 0


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_an_example_is_short_and_says_what_it_is_for(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) < 60
    assert ast.get_docstring(ast.parse(text))


@pytest.mark.process
async def test_one_turn(root: Path) -> None:
    """As a user runs it: a program, and its server in a process of its own."""
    replies = [
        reply(begins_to_say(), word("Let me "), word("look."), says("Let me look."), runs("echo", "hi")),
        reply(says("It says hi."), input=20, output=10),
    ]
    command = [sys.executable, str(EXAMPLES / "one_turn.py"), "What is here?"]
    async with serving_model(ScriptedModel(replies), root, {}) as environment:
        with anyio.fail_after(PATIENCE):
            done = await anyio.run_process(command, env=environment, cwd=root / "workspace", check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.decode().startswith("Let me look.\n[echo hi: exit code 0]")
    assert done.stderr == b"45 tokens\n"


async def test_approvals(root: Path, run_example: RunExample) -> None:
    replies = (
        reply(runs("touch", "yes")),
        reply(runs("touch", "no", call_id="c2")),
        reply(patches(PATCH, "c3")),
        reply(says("Done.")),
    )
    done = await run_example("approvals.py", "Go.", replies=replies, typed="y\nn\ny\n")
    assert done.status == 0, done.stderr
    shown = done.stdout
    assert "Run `touch yes` in" in shown
    assert "--- add " in shown
    assert shown.endswith("Done.\n")
    assert sorted(path.name for path in (root / "workspace").iterdir()) == ["new.txt", "yes"]


async def test_a_batch_with_progress(root: Path, run_example: RunExample) -> None:
    folders = [root / name for name in ("a", "b", "c")]
    for folder in folders:
        folder.mkdir()
    replies = (reply(says("Fine.")), reply(says("Fine.")), failure(400, {"error": {"message": "too much"}}))
    done = await run_example("batch.py", "Look.", *map(str, folders), replies=replies)
    assert done.status == 1, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split(" ")[0] for line in lines] == ["[1/3]", "[2/3]", "[3/3]"]
    assert {Path(line.split(" ")[1].rstrip(":")) for line in lines} == set(folders)
    assert sorted("FAILED" in line for line in lines) == [False, False, True]


async def test_structured_output(run_example: RunExample) -> None:
    findings = [
        {"line": 7, "severity": "low", "summary": "unused"},
        {"line": 3, "severity": "high", "summary": "wrong"},
    ]
    answer = json.dumps({"findings": findings, "verdict": "Needs work."})
    done = await run_example("structured_output.py", "a.py", replies=(reply(says(answer)),))
    assert done.status == 0, done.stderr
    assert done.stdout == "a.py:3: high: wrong\na.py:7: low: unused\nNeeds work.\n"


@pytest.mark.process
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


GUIDE = Path(__file__).resolve().parents[2] / "docs" / "client.md"

BLOCKS = [
    (match[1], match.start()) for match in re.finditer(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
]
ANSWER = '{"safe": true, "reason": "It only prints."}'
REPLY = reply(begins_to_say(), *map(word, ANSWER.split(" ")), says(ANSWER))


def is_program(code: str) -> bool:
    """Whether it opens a server of its own."""
    return ".spawn(" in code


async def test_the_pieces_run_in_their_order(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with serving_model(ScriptedModel([REPLY] * 20), root, {}) as environment:
        connector = connector_to("in_process", root, environment)
        async with AppServer.connect(connector) as server:
            names = {"AppServer": AppServer, "server": server, "home": root / "home"}
            names["thread"] = await server.start_thread()
            for code, start in BLOCKS:
                if not is_program(code):
                    line = GUIDE.read_text()[:start].count("\n") + 1
                    compiled = compile(
                        "\n" * line + code, GUIDE, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True
                    )
                    with anyio.fail_after(PATIENCE):
                        if inspect.isawaitable(ended := eval(compiled, names)):
                            await ended
    assert "True It only prints." in capsys.readouterr().out


@pytest.mark.parametrize("code", [code for code, _ in BLOCKS if is_program(code)], ids=["async", "sync"])
async def test_the_programs_run(
    root: Path, code: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a server in this process; tests of the library and of its examples start others."""
    monkeypatch.chdir(root / "workspace")
    async with serving_model(ScriptedModel([REPLY] * 2), root, {}) as environment:
        spawn_in_process(monkeypatch, connector_to("in_process", root, environment))
        with anyio.fail_after(PATIENCE):
            await anyio.to_thread.run_sync(exec, compile(code, GUIDE, "exec"), {"__name__": "__main__"})
    assert ANSWER in capsys.readouterr().out
