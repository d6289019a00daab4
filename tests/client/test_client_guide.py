"""Every piece of code in docs/client.md runs, in its order, against the scripted model."""

import ast
import inspect
import re
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from app_server.client import AppServer
from tests.support.library import connector_to, make_folders, serving_model, spawn_in_process
from tests.support.scripted_model import ScriptedModel, begins_to_say, reply, says, word

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
    make_folders(tmp_path)
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
