"""The programs of examples/ and the code of docs/client.md, run with the scripted model."""

import ast
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from anyio.abc import Process
from anyio.streams.text import TextReceiveStream

from app_server_protocol.encoding import Json
from tests.docs.markdown_blocks import ROOT, blocks, pages
from tests.support.library import serving_model
from tests.support.program import PYTHON
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

EXAMPLES = ROOT / "examples"
PATIENCE = 240.0
"""Maximum time for a program and its server, in seconds. On a loaded machine both are slow to start."""

pytestmark = pytest.mark.process

PATCH = "*** Begin Patch\n*** Add File: new.txt\n+hello\n*** End Patch\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    make_folders(tmp_path)
    return tmp_path


def example(name: str) -> str:
    return str(EXAMPLES / name)


@dataclass(slots=True)
class Ran:
    status: int
    stdout: str
    stderr: str


async def run(
    root: Path,
    *command: str,
    replies: Sequence[Reply],
    config: Mapping[str, Json] | None = None,
    typed: str = "",
) -> Ran:
    """Run a program as a user does, with the interpreter of the installed copy and the server that it starts."""
    async with serving_model(ScriptedModel(list(replies)), root, config or {}) as environment:
        with anyio.fail_after(PATIENCE):
            done = await anyio.run_process(
                (PYTHON, *command),
                input=typed.encode(),
                env=environment,
                cwd=root / "workspace",
                check=False,
            )
    return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_an_example_is_short_and_says_what_it_is_for(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) < 60
    assert ast.get_docstring(ast.parse(text))


async def test_one_turn(root: Path) -> None:
    replies = [
        reply(begins_to_say(), word("Let me "), word("look."), says("Let me look."), runs("echo", "hi")),
        reply(says("It says hi."), input=20, output=10),
    ]
    done = await run(root, example("one_turn.py"), "What is here?", replies=replies)
    assert done.status == 0, done.stderr
    assert done.stdout.startswith("Let me look.\n[echo hi: exit code 0]")
    assert done.stderr == "45 tokens\n"


async def test_approvals(root: Path) -> None:
    replies = (
        reply(runs("touch", "yes")),
        reply(runs("touch", "no", call_id="c2")),
        reply(patches(PATCH, "c3")),
        reply(says("Done.")),
    )
    done = await run(root, example("approvals.py"), "Go.", replies=replies, typed="y\nn\ny\n")
    assert done.status == 0, done.stderr
    shown = done.stdout
    assert "Run `touch yes` in" in shown
    assert "--- add " in shown
    assert shown.endswith("Done.\n")
    assert sorted(path.name for path in (root / "workspace").iterdir()) == ["new.txt", "yes"]


async def test_a_batch_with_progress(root: Path) -> None:
    folders = [root / name for name in ("a", "b", "c")]
    for folder in folders:
        folder.mkdir()
    replies = (reply(says("Fine.")), reply(says("Fine.")), failure(400, {"error": {"message": "too much"}}))
    done = await run(root, example("batch.py"), "Look.", *map(str, folders), replies=replies)
    assert done.status == 1, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split(" ")[0] for line in lines] == ["[1/3]", "[2/3]", "[3/3]"]
    assert {Path(line.split(" ")[1].rstrip(":")) for line in lines} == set(folders)
    assert sorted("FAILED" in line for line in lines) == [False, False, True]


async def test_structured_output(root: Path) -> None:
    findings = [
        {"line": 7, "severity": "low", "summary": "unused"},
        {"line": 3, "severity": "high", "summary": "wrong"},
    ]
    answer = json.dumps({"findings": findings, "verdict": "Needs work."})
    done = await run(root, example("structured_output.py"), "a.py", replies=(reply(says(answer)),))
    assert done.status == 0, done.stderr
    assert done.stdout == "a.py:3: high: wrong\na.py:7: low: unused\nNeeds work.\n"


async def test_the_bot_answers_steers_and_stops(root: Path) -> None:
    hold, endless = Hold(), Hold()
    replies = [
        reply(says("Hello.")),
        reply(begins_to_say(), hold, says("Working.")),
        reply(says("Blue.")),
        reply(begins_to_say(), endless),
    ]
    async with serving_model(ScriptedModel(replies), root, {}) as environment:
        command = [PYTHON, example("bot.py")]
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
    """Send a text; return the bot's answer of one line."""
    if text:
        await say(bot, text)
    assert bot.stdout is not None
    answer = ""
    stream = TextReceiveStream(bot.stdout)
    while not answer.endswith("\n"):
        answer += await stream.receive()
    return answer.rstrip("\n")


GUIDE = ROOT / "docs" / "client.md"

BLOCKS = [
    (match[1], match.start()) for match in re.finditer(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
]
ANSWER = '{"safe": true, "reason": "It only prints."}'
REPLY = reply(begins_to_say(), *map(word, ANSWER.split(" ")), says(ANSWER))


def is_program(code: str) -> bool:
    """Return whether the code opens a server of its own."""
    return ".spawn(" in code


PIECES = """
import ast, inspect, json, sys
from pathlib import Path

import anyio

from app_server.client import AppServer

async def main():
    async with AppServer.spawn() as server:
        names = {"AppServer": AppServer, "server": server, "home": Path(sys.argv[2])}
        names["thread"] = await server.start_thread()
        for line, code in json.load(sys.stdin):
            compiled = compile("\\n" * line + code, sys.argv[1], "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            if inspect.isawaitable(ended := eval(compiled, names)):
                await ended

anyio.run(main)
"""
"""Program that runs pieces of code in order, each with the names of those before."""


async def test_the_pieces_run_in_their_order(root: Path) -> None:
    pieces = [
        (GUIDE.read_text()[:start].count("\n") + 1, code) for code, start in BLOCKS if not is_program(code)
    ]
    done = await run(
        root,
        *("-c", PIECES, str(GUIDE), str(root / "home")),
        replies=[REPLY] * 20,
        typed=json.dumps(pieces),
    )
    assert done.status == 0, done.stderr
    assert "True It only prints." in done.stdout


@pytest.mark.parametrize("code", [code for code, _ in BLOCKS if is_program(code)], ids=["async", "sync"])
async def test_the_programs_run(root: Path, code: str) -> None:
    done = await run(root, "-c", code, replies=[REPLY] * 2)
    assert done.status == 0, done.stderr
    assert ANSWER in done.stdout


PUBLIC = {
    "app_server.client",
    "app_server.client.server_events",
    "app_server.client.sync",
    "app_server.in_process",
}
"""Modules that other programs may import."""


def not_public(code: str) -> set[str]:
    """Return the modules of this project that a program imports and that are not public."""
    names = set[str]()
    for node in ast.walk(ast.parse(code)):
        match node:
            case ast.Import():
                names |= {each.name for each in node.names}
            case ast.ImportFrom(module=str(module)):
                names.add(module)
            case _:
                pass
    return {name for name in names if name.split(".")[0] in ("app_server", "app_server_protocol")} - PUBLIC


def test_examples_and_pages_import_only_what_is_public() -> None:
    examples = {str(path.relative_to(ROOT)): path.read_text() for path in EXAMPLES.rglob("*.py")}
    shown = {
        str(block): block.text for page in pages() for block in blocks(page) if block.language == "python"
    }
    assert len(examples) > 5
    assert len(shown) > 10
    assert {name: found for name, code in (examples | shown).items() if (found := not_public(code))} == {}


def test_a_module_that_is_not_public_is_found() -> None:
    code = (
        "from app_server_protocol.v2 import items\nimport "
        "app_server.server.rpc, app_server.client.sync\nimport anyio"
    )
    assert not_public(code) == {"app_server_protocol.v2", "app_server.server.rpc"}
