"""The clients of docs/embedding.md, which use no library: examples/wire, each run as a user runs it."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from app_server_protocol.encoding import Json
from tests.support.library import serving_model
from tests.support.program import BIN, PYTHON
from tests.support.scripted_model import (
    Reply,
    ScriptedModel,
    begins_to_say,
    failure,
    patches,
    reply,
    runs,
    says,
    script,
    word,
)
from tests.support.world import make_folders

ROOT = Path(__file__).resolve().parents[2]
CLIENTS = {path.stem: path for path in sorted((ROOT / "examples" / "wire").glob("*.py"))}
YES = {"threads": "yes", "acp": "allow_once", "conversations": "yes"}
NO = {"threads": "no", "acp": "reject_once", "conversations": "no"}
ASKS: Json = {"approval_policy": "untrusted", "sandbox_mode": "workspace-write"}
"""Configuration of the server. Over ACP a client cannot choose these before the session is open."""
PATIENCE = 240.0
PATCH = "*** Begin Patch\n*** Add File: new.txt\n+hello\n*** End Patch\n"

pytestmark = pytest.mark.process


def shown() -> list[str]:
    page = (ROOT / "docs" / "embedding.md").read_text(encoding="utf-8")
    # Programs begin with a docstring; parts of them that use the client library do not.
    return re.findall(r'```python\n(""".*?)```', page, re.DOTALL)


def test_the_page_shows_these_programs() -> None:
    assert sorted(shown()) == sorted(path.read_text(encoding="utf-8") for path in CLIENTS.values())


@pytest.mark.parametrize("name", CLIENTS)
def test_it_is_short_and_needs_only_python(name: str) -> None:
    text = CLIENTS[name].read_text(encoding="utf-8")
    assert len(text.splitlines()) < 80
    imported = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {
        (node.module or "") if isinstance(node, ast.ImportFrom) else node.names[0].name for node in imported
    }
    assert names <= sys.stdlib_module_names


async def run(name: str, root: Path, typed: str, replies: list[Reply]) -> tuple[int, str]:
    make_folders(root)
    async with serving_model(ScriptedModel(replies), root, ASKS) as environment:
        with anyio.fail_after(PATIENCE):
            done = await anyio.run_process(
                [PYTHON, str(CLIENTS[name]), "How much is six times seven?"],
                input=typed.encode(),
                stderr=subprocess.STDOUT,
                check=False,
                cwd=root / "workspace",
                env={**environment, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"},
            )
    return done.returncode, done.stdout.decode()


@pytest.mark.parametrize("name", CLIENTS)
async def test_it_holds_a_conversation_and_asks(name: str, tmp_path: Path) -> None:
    replies = [
        reply(begins_to_say(), word("I will "), word("see."), says("I will see."), script("echo 42 >answer")),
        reply(runs("touch", "no", call_id="c2")),
        reply(patches(PATCH, "c3")),
        reply(says("It is 42.")),
    ]
    status, printed = await run(name, tmp_path, f"{YES[name]}\n{NO[name]}\n{YES[name]}\n", replies)
    assert status == 0, printed
    for text in ("I will see.", "echo 42 >answer", "touch", "new.txt", "hello"):
        assert text in printed, printed
    assert printed.rstrip().endswith("It is 42."), printed
    assert printed.count("I will see.") == 1
    assert sorted(path.name for path in (tmp_path / "workspace").iterdir()) == ["answer", "new.txt"]


@pytest.mark.parametrize("name", CLIENTS)
async def test_it_says_why_a_turn_failed(name: str, tmp_path: Path) -> None:
    refused = failure(400, {"error": {"message": "no such model"}})
    _, printed = await run(name, tmp_path, "", [refused])
    assert "no such model" in printed
