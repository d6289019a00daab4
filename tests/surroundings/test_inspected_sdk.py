"""The Python SDK of codex, with `app-server inspect` between it and this server: nothing is different for it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import anyio
import anyio.to_thread
import pytest

from tests.support.scripted_model import begins_to_say, reply, says, script, word
from tests.support.world import SCRIPT, MakeWorld, World

sdk: Any = pytest.importorskip("openai_codex")
T = TypeVar("T")

PATIENCE = 60.0


def inspecting(w: World, record: Path) -> str:
    """A program that the SDK takes for the server."""
    program = w.root / "inspected"
    program.write_text(f'#!/bin/sh\nexec {SCRIPT} inspect --record {record} -- {SCRIPT} "$@"\n')
    program.chmod(0o700)
    return str(program)


async def blocking(work: Callable[[], T]) -> T:
    with anyio.fail_after(PATIENCE):
        return await anyio.to_thread.run_sync(work, abandon_on_cancel=True)


async def test_the_sdk_runs_turns_through_the_inspector(world: MakeWorld) -> None:
    replies = reply(script("echo hi > made")), reply(begins_to_say(), word("a"), word(" b"), says("a b"))
    async with world(*replies) as w:
        record = w.root / "record.jsonl"
        config = sdk.CodexConfig(
            codex_bin=inspecting(w, record), cwd=str(w.workspace), env=dict(w.environment)
        )

        def work() -> Any:
            with sdk.Codex(config) as codex:
                thread = codex.thread_start(sandbox=sdk.Sandbox.workspace_write)
                return thread.run("Make it.")

        result = await blocking(work)
        assert result.final_response == "a b"
        assert (w.workspace / "made").read_text() == "hi\n"
        lines = [json.loads(line) for line in record.read_text().splitlines()]
        methods = [line["message"].get("method") for line in lines if "message" in line]
        assert "turn/completed" in methods
        assert methods.count("item/agentMessage/delta") >= 2
