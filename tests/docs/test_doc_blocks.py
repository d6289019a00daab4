"""Every code block of the documentation is run, or has a reason why not; the lists on the pages match the code."""

import ast
import json
import os
import re
import subprocess
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from anyio.abc import SocketStream

from app_server.cli.demo.scripted_model import (
    EVENT_STREAM,
    LAST_CHUNK,
    LoopbackServer,
    ReceivedRequest,
    chunk,
    response_head,
    whole_response,
)
from app_server.engine.config.config_values import SettingsSource
from app_server.engine.config.settings_service import load_config
from app_server.engine.support.filelock import is_held
from app_server.engine.support.socket_paths import place_of_home
from app_server_protocol.encoding import Json
from app_server_protocol.v1 import v1_table
from app_server_protocol.v2 import v2_table
from tests.docs.markdown_blocks import ROOT, Block, blocks, pages, unmarked_indented_blocks
from tests.support.program import BIN

ANSWER = "There is one file."


class LocalProvider(LoopbackServer):
    def __init__(self, *models: str) -> None:
        self.models = models
        self.requests: list[tuple[str, Json]] = []

    async def respond(self, request: ReceivedRequest, stream: SocketStream) -> bool:
        self.requests.append((request.path, json.loads(request.body or b"null")))
        if request.path.endswith("/models"):
            listed = {"data": [{"id": model} for model in self.models]}
            await stream.send(whole_response(200, json.dumps(listed).encode()))
            return True
        answer = json.dumps(ANSWER) if b'"response_format"' in request.body else ANSWER
        said = {"choices": [{"delta": {"role": "assistant", "content": answer}, "finish_reason": "stop"}]}
        await stream.send(response_head(200, EVENT_STREAM))
        for data in (json.dumps(said), "[DONE]"):
            await stream.send(chunk(f"data: {data}\n\n".encode()))
        await stream.send(LAST_CHUNK)
        return True


RUN_ELSEWHERE = {
    "docs/client.md": "tests/client/test_client_examples.py",
    "docs/hooks.md": "tests/engine/hooks/test_hook_examples.py",
}
"""Pages whose blocks are all run by a test of their own."""

PAGES = [page for page in pages() if str(page.relative_to(ROOT)) not in RUN_ELSEWHERE]
ALL = [block for page in PAGES for block in blocks(page)]
OPEN = [block for block in ALL if block.mark is None]
COMMANDS = sorted({block.page for block in OPEN if block.language == "sh"})
FOUND_BROKEN = (0, 1)
USABLE = 'model_provider = "ollama"\nmodel = "qwen3-coder"\n'
"""Configuration for a page that shows none."""
OWN_WORDS = ("text", "")
"""Languages of blocks that are diagrams, lists or messages."""


def of(language: str) -> list[Block]:
    return [block for block in OPEN if block.language == language]


def test_every_block_has_a_language_that_is_run_or_a_mark() -> None:
    assert len(ALL) > 100
    known = {"toml", "sh", "json", *OWN_WORDS}
    assert [str(block) for block in OPEN if block.language not in known] == []


def test_no_command_hides_in_a_block_of_text() -> None:
    """Find lines that begin like a command, except messages that a program prints with its name in front."""
    command = re.compile(r"^(?:\$ |(?:app-server|pipx?|uvx?|make|git|npm|python3?|sh) [^:]*$)", re.MULTILINE)
    assert [str(block) for block in OPEN if block.language in OWN_WORDS and command.search(block.text)] == []


def test_no_block_hides_in_an_indentation() -> None:
    assert {str(page): found for page in PAGES if (found := unmarked_indented_blocks(page))} == {}


def test_pages_with_a_test_of_their_own_have_it() -> None:
    for page, test in RUN_ELSEWHERE.items():
        assert (ROOT / test).exists() or not (ROOT / page).exists(), page


def test_what_another_test_runs_is_named_there() -> None:
    for block in ALL:
        if block.mark is not None and block.mark.startswith("run by "):
            test = ROOT / block.mark.removeprefix("run by ")
            assert block.page.name in test.read_text(encoding="utf-8"), str(block)


@pytest.mark.parametrize("block", of("toml"), ids=str)
def test_a_configuration_can_be_used_as_it_stands(block: Block, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(block.text, encoding="utf-8")
    place = SettingsSource(home=tmp_path, cwd=tmp_path, environment={"HOME": str(tmp_path)})
    config = load_config(place)
    assert [str(each) for each in config.notices.warnings] == []
    assert config.notices.old_names == ()


@pytest.mark.parametrize("block", of("json"), ids=str)
def test_json_is_json(block: Block) -> None:
    json.loads(block.text)


def messages() -> Iterator[tuple[Block, str, dict[str, object]]]:
    """Yield whole messages with their arrow. Those that were shortened with `…` are left out."""
    for block in OPEN:
        for line in block.text.splitlines() if block.language in OWN_WORDS else ():
            if line.startswith(("→ {", "← {")) and "…" not in line:
                yield block, line[0], json.loads(line[2:])


def test_messages_are_those_of_the_protocol() -> None:
    rows = {**v2_table.TABLE.client_requests, **v1_table.TABLE.client_requests}
    shown = 0
    for block, arrow, message in messages():
        method = message.get("method")
        if arrow == "→" and isinstance(method, str) and "id" in message:
            assert method in rows, f"{block}: {method}"
            rows[method].parse(message.get("params"))
            shown += 1
    assert shown > 20


# --- commands


@asynccontextmanager
async def surroundings(root: Path) -> AsyncIterator[Mapping[str, str]]:
    provider = LocalProvider("qwen3-coder:latest")
    (root / "user" / ".codex").mkdir(parents=True)
    (root / "work").mkdir()
    (root / "work" / "client.py").write_text(documented_client())
    (root / "work" / "schema.json").write_text('{"type": "string"}')
    await run("git init -q; git add client.py; echo >> client.py", root, os.environ)
    async with provider.serving() as url:
        kept = {name: os.environ[name] for name in ("LANG", "TMPDIR") if name in os.environ}
        environment = kept | {
            "PATH": f"{BIN}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            "HOME": str(root / "user"),
            "CODEX_OSS_BASE_URL": url,
            "NO_PROXY": "127.0.0.1",
        }
        try:
            yield environment
        finally:
            if is_held(place_of_home(str(root / "user" / ".codex")).server_lock):
                status, printed = await run("app-server daemon stop --now", root, environment)
                assert status == 0, printed


def documented_client() -> str:
    found = re.search(r"```python\n(.*?)```", (ROOT / "docs" / "embedding.md").read_text(), re.DOTALL)
    assert found
    return found[1]


async def run(command: str, root: Path, environment: Mapping[str, str]) -> tuple[int, str]:
    with anyio.fail_after(60):
        done = await anyio.run_process(
            ("sh", "-ec", command),
            stdin=subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
            check=False,
            env=environment,
            cwd=root / "work",
        )
    return done.returncode, done.stdout.decode("utf-8", "replace")


@pytest.mark.process
@pytest.mark.parametrize("page", COMMANDS, ids=lambda page: str(page.relative_to(ROOT)))
async def test_commands_run_as_they_stand(page: Path, tmp_path: Path) -> None:
    async with surroundings(tmp_path) as environment:
        for block, command, config in commands_of(page):
            (tmp_path / "user" / ".codex" / "config.toml").write_text(config)
            status, printed = await run(command, tmp_path, environment)
            expected = FOUND_BROKEN if "app-server doctor" in command else (0,)
            assert status in expected, f"{block}: {command}\n{printed}"
            assert "Traceback" not in printed, f"{block}: {command}\n{printed}"
            if "doctor --online" in command:
                assert "ok       provider ollama:" in printed
            if "client.py" in command:
                assert ANSWER in printed


def commands_of(page: Path) -> Iterator[tuple[Block, str, str]]:
    """Yield the commands of a page that are run, each with the configuration that the page has shown before it."""
    config = USABLE
    for block in blocks(page):
        if block.language == "toml":
            config = block.text
        elif block.language == "sh" and block.mark is None:
            yield from ((block, line, config) for line in block.text.splitlines() if line.strip())


FOLDERS = (
    *(f"app_server/server/{name}/**/*.py" for name in ("apis", "conversations", "rpc", "bootstrap")),
    "app_server/engine/**/*.py",
    "protocol/app_server_protocol/rpc_errors.py",
)
MADE_BY = {"invalid_request": "invalid_request", "internal_error": "internal"}
"""Functions that make an error, and its default kind."""


def kinds() -> Iterator[str]:
    for folder in FOLDERS:
        for path in sorted(ROOT.glob(folder)):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                yield from kinds_of(node)


def kinds_of(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Call(func=ast.Name(id=name), args=[_]) if name in MADE_BY:
            yield MADE_BY[name]
        case ast.Call(func=ast.Name(id=name), args=[_, ast.Constant(value=str(kind)), *_]) if name in MADE_BY:
            yield kind
        case ast.Call(func=ast.Name(id="invalid_params"), args=[_, _, ast.Constant(value=str(kind))]):
            yield kind
        case ast.Assign(targets=[ast.Name(id="kind")], value=value):
            yield from words(value)
        case ast.Call(func=ast.Name(id="not_found"), args=[ast.Constant(value=str(what)), _]):
            yield f"{what.replace(' ', '_')}_not_found"
        case ast.Call(func=ast.Name(id="FileRefused"), args=[_, *kind]):
            yield from words(kind[0]) if kind else ("file",)
        case ast.Dict(keys=keys, values=values):
            for key, value in zip(keys, values, strict=True):
                if isinstance(key, ast.Constant) and key.value == "kind":
                    yield from words(value)
        case _:
            pass


def words(value: ast.AST) -> Iterator[str]:
    match value:
        case ast.Constant(value=str(kind)):
            yield kind
        case ast.IfExp(body=body, orelse=other):
            yield from (*words(body), *words(other))
        case _:
            pass


def documented() -> set[str]:
    text = (ROOT / "docs" / "embedding.md").read_text(encoding="utf-8")
    section = text.partition("## Errors")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    lists = section.partition("Kinds of the thread API alone")[2]
    return {word for part in (*rows, lists) for word in re.findall(r"`([a-z_]+)`", part)} - {"kind"}


def test_the_documented_kinds_are_those_of_the_code() -> None:
    # Kinds of items, of images, of stored lines and of the requests that hooks are told of are not kinds of errors.
    found = {kind for kind in kinds() if re.fullmatch("[a-z_]+", kind)} - {"error", "sampling"}
    assert found - documented() == set()
    assert documented() - found == set()
