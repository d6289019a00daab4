"""The client that docs/embedding.md shows works as it stands there."""

import os
import re
import subprocess
import sys
from pathlib import Path

import anyio

from app_server.demo.scripted_model import ScriptedModel, in_order, reply, runs, says
from app_server.demo.workspace import CONFIG, MODEL

DOCUMENT = Path(__file__).parents[2] / "docs" / "embedding.md"


async def test_the_documented_client_holds_a_conversation(tmp_path: Path) -> None:
    example = re.search(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert example
    (tmp_path / "client.py").write_text(example[1])
    command = ["sh", "-c", "echo $((6 * 7)) > answer.txt"]
    model = ScriptedModel(
        in_order(reply(*says("I will see."), runs(command, "call-1")), reply(*says("It is 42.")))
    )
    async with model.serving() as url:
        home = tmp_path / "home"
        home.mkdir()
        (home / "config.toml").write_text(CONFIG.format(url=url, model=MODEL))
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment = dict(os.environ) | {"CODEX_HOME": str(home), "PATH": path, "NO_PROXY": "127.0.0.1"}
        workspace = tmp_path / "workspace"
        workspace.mkdir()
        with anyio.fail_after(60):
            done = await anyio.run_process(
                [sys.executable, "../client.py", "How much is six times seven?"],
                input=b"y\n",
                check=False,
                cwd=workspace,
                env=environment,
                stderr=subprocess.STDOUT,
            )
    assert done.returncode == 0, done.stdout.decode()
    assert "I will see." in done.stdout.decode()
    assert "It is 42." in done.stdout.decode()
    assert (workspace / "answer.txt").read_text() == "42\n"
