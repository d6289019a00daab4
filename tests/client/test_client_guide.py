"""Every piece of code in docs/client.md runs, in its order, against the scripted model."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from app_server.client import AppServer
from tests.support.library import connector_to, serving_model
from tests.support.scripted_model import ScriptedModel, begins_to_say, reply, says, word

pytestmark = pytest.mark.anyio

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "client.md"
PATIENCE = 240.0
"""Seconds for a program and its server; on a machine that does much else both are slow to start."""

BLOCKS = [
    (match[1], match.start()) for match in re.finditer(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
]
ANSWER = '{"safe": true, "reason": "It only prints."}'
REPLY = reply(begins_to_say(), *map(word, ANSWER.split(" ")), says(ANSWER))


def is_program(code: str) -> bool:
    """Whether it opens a server of its own."""
    return ".spawn(" in code


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for folder in ("home", "workspace", "user"):
        (tmp_path / folder).mkdir()
    return tmp_path


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


@pytest.mark.process
@pytest.mark.parametrize("code", [code for code, _ in BLOCKS if is_program(code)], ids=["async", "sync"])
async def test_the_programs_run(root: Path, code: str) -> None:
    async with serving_model(ScriptedModel([REPLY] * 2), root, {}) as environment:
        with anyio.fail_after(PATIENCE):
            done = await anyio.run_process(
                [sys.executable, "-c", code],
                env=environment,
                cwd=root / "workspace",
                check=False,
                stderr=subprocess.STDOUT,
            )
    assert done.returncode == 0, done.stdout.decode()
    assert ANSWER in done.stdout.decode()
