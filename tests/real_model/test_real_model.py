"""Turns with a real model at several windows, over each API and command: behaviour that no scripted model shows."""

import json
import os
import subprocess
import urllib.request
from collections.abc import Iterator

import anyio.to_thread
import pytest

from app_server_protocol.encoding import Json
from tests.real_model.conftest import REAL_MODEL, RealWorld, Relay, llama_server
from tests.support.editor import Editor
from tests.support.program import SCRIPT
from tests.support.thread_client import ended, items, notified, start, turn
from tests.support.waiting import until

WINDOWS = (4096, 8192, 16384, 32768)
FIRST_REQUEST = {4096: 420, 8192: 750, 16384: 750, 32768: 2050}
"""Maximum number of tokens of a first request with a short question, by window."""

TURNS = 10
LONG = " ".join(f"word{n}" for n in range(110))
"""Message of some 330 tokens: ten of them do not fit into the smallest window."""


@pytest.fixture(scope="module", params=WINDOWS)
def served(request: pytest.FixtureRequest) -> Iterator[tuple[int, str]]:
    if not REAL_MODEL:
        pytest.skip("REAL_MODEL names no GGUF file")
    with llama_server(request.param) as address:
        yield request.param, address


@pytest.fixture(scope="module")
def small() -> Iterator[str]:
    if not REAL_MODEL:
        pytest.skip("REAL_MODEL names no GGUF file")
    with llama_server(4096) as address:
        yield address


def asked(address: str, path: str) -> Json:
    with urllib.request.urlopen(f"{address}{path}", timeout=60) as answer:
        return json.load(answer)


def posted(address: str, path: str, body: Json) -> Json:
    sent = urllib.request.Request(
        f"{address}{path}", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(sent, timeout=60) as answer:
        return json.load(answer)


def has_answered(turn: Json) -> bool:
    """Return whether the model answered. A tiny model may go on until the limit of its answers, or end them at once."""
    endings = ("reason: length", "without text or a call")
    return turn["status"] == "completed" or any(each in turn["error"]["message"] for each in endings)


def counts(w: object) -> list[Json]:
    return [each["tokenUsage"] for each in notified(w, "thread/tokenUsage/updated")]  # type: ignore[arg-type]


async def test_ten_turns_with_a_tool(served: tuple[int, str], real_world: RealWorld) -> None:
    """The window is the server's own; nothing is configured. The model is forced to call the shell in each turn."""
    window, address = served
    relay = Relay(address=address, forces_calls=True)
    async with real_world(relay, config={"model_context_window": window} if window > 8192 else {}) as w:
        thread = await start(w.client)
        for n in range(TURNS):
            done = await ended(w.client, await turn(w.client, thread, f"{n}: {LONG}"))
            assert has_answered(done), (n, done["error"])
        kinds = [item["type"] for item in items(w)]
        commands = [item for item in items(w, kind="commandExecution") if item["exitCode"] == 0]
        largest = max((each["last"]["totalTokens"] for each in counts(w)), default=0)
        compactions = kinds.count("contextCompaction")
        print(window, "compactions", compactions, "largest request", largest)  # noqa: T201
        # A turn that is compacted in its middle asks anew, with the user's message last, and calls once more.
        assert TURNS <= len(commands) <= TURNS + compactions
        assert largest <= window
        assert (compactions > 0) == (window == 4096)


async def test_the_first_request_is_small(served: tuple[int, str], real_world: RealWorld) -> None:
    window, address = served
    async with real_world(Relay(address=address), config={"model_context_window": window}) as w:
        thread = await start(w.client)
        await ended(w.client, await turn(w.client, thread, "Say hello."))
        body = w.model.requests[0].body
        texts = [*(each["content"] for each in body["messages"]), json.dumps(body.get("tools", []))]
        used = sum(len(posted(address, "/tokenize", {"content": each})["tokens"]) for each in texts)
        print(window, "first request", used)  # noqa: T201
        assert used <= FIRST_REQUEST[window]


async def test_an_interrupt_stops_the_generation(small: str, real_world: RealWorld) -> None:
    relay = Relay(address=small, extra={"ignore_eos": True, "max_completion_tokens": 3000})
    async with real_world(relay) as w:
        thread = await start(w.client)
        id = await turn(w.client, thread, "Tell a long story.")
        await w.client.expect("item/agentMessage/delta")
        assert asked(small, "/slots")[0]["is_processing"]
        await w.client.call("turn/interrupt", {"threadId": thread, "turnId": id})
        assert (await ended(w.client, id))["status"] == "interrupted"
        await until(lambda: not asked(small, "/slots")[0]["is_processing"])


async def test_a_message_that_does_not_fit_is_an_error_and_the_thread_goes_on(
    small: str, real_world: RealWorld
) -> None:
    async with real_world(Relay(address=small)) as w:
        thread = await start(w.client)
        first = await ended(w.client, await turn(w.client, thread, "hi"))
        assert has_answered(first), first["error"]
        done = await ended(w.client, await turn(w.client, thread, f"{LONG} " * 16))
        assert done["error"]["codexErrorInfo"] == "contextWindowExceeded"
        assert "4,096" in done["error"]["message"]
        again = await ended(w.client, await turn(w.client, thread, "go on"))
        assert has_answered(again), again["error"]


async def test_a_window_that_is_smaller_than_configured_is_found_by_the_refusal(
    small: str, real_world: RealWorld
) -> None:
    """The server refuses the request; the next turn begins with a compaction and succeeds."""
    async with real_world(Relay(address=small), config={"model_context_window": 30000}) as w:
        thread = await start(w.client)
        failed = None
        for n in range(TURNS):
            done = await ended(w.client, await turn(w.client, thread, f"{n}: {LONG}"))
            if not has_answered(done):
                failed = done
                break
        assert failed is not None
        assert failed["error"]["codexErrorInfo"] == "contextWindowExceeded"
        after = await ended(w.client, await turn(w.client, thread, "go on"))
        assert has_answered(after), after["error"]
        assert "contextCompaction" in [item["type"] for item in items(w)]


async def test_one_turn_over_the_conversation_api(small: str, real_world: RealWorld) -> None:
    async with real_world(Relay(address=small)) as w:
        done = await w.client.turn(await w.open(), "Say hello.")
        assert done.last_message or "reason: length" in str(done.of("error"))


async def test_one_turn_over_the_agent_client_protocol(small: str, real_world: RealWorld) -> None:
    async with real_world(Relay(address=small), acp=True) as w:
        editor = Editor(w)
        await editor.start()
        assert await editor.ends(await editor.session(), "Say hello.") in ("end_turn", "max_tokens")


@pytest.mark.parametrize("arguments", [("exec", "Say hello."), ("chat",)])
async def test_one_turn_of_a_command(small: str, real_world: RealWorld, arguments: tuple[str, ...]) -> None:
    async with real_world(Relay(address=small)) as w:
        command = (SCRIPT, *arguments, *(("--skip-git-repo-check",) if arguments[0] == "exec" else ()))

        def run() -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                command,
                input="Say hello.\n" if arguments[0] == "chat" else "",
                env={**os.environ, **w.environment},
                cwd=w.workspace,
                capture_output=True,
                text=True,
                timeout=240,
                check=False,
            )

        done = await anyio.to_thread.run_sync(run)
        assert done.returncode == 0 or "reason: length" in done.stderr, done.stderr
        assert done.stdout.strip() or "reason: length" in done.stderr
