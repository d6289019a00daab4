"""A thread that used Chat Completions, the Messages API and the Responses API here goes on in codex with all its
messages and calls, and comes back. `tests.support.codex_peers` explains how the codex programs are named.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from app_server_protocol.encoding import Json
from tests.support import strict_chat_rows, strict_messages, strict_responses
from tests.support.client import Client
from tests.support.codex_peers import peer
from tests.support.places import Place, place_in
from tests.support.scripted_model import ModelRequest, reply, says
from tests.support.strict_chat import StrictChat
from tests.support.strict_provider import Answer, Author, Strict, shell
from tests.support.strict_responses import StrictResponses

pytestmark = pytest.mark.process

PROVIDER = '[model_providers.{name}]\nname = "{row}"\nbase_url = "{url}"\nwire = "{name}"\n'
ROWS = {"chat": "DeepSeek", "messages": "Claude", "responses": "OpenAI"}


WIRES = ("chat", "messages", "responses")


def providers() -> dict[str, Strict]:
    """Return a provider of each API. Each provider knows the thoughts that it wrote itself."""
    return {
        "chat": StrictChat(strict_chat_rows.PROVIDERS["deepseek"]),
        "messages": strict_messages.providers()["anthropic"],
        "responses": StrictResponses(strict_responses.PROVIDERS["openai"]),
    }


def answers(wire: str) -> list[Answer]:
    """Return a message with two calls, one of which fails, and then an answer."""
    calls = (shell(f"{wire}_a", f"echo out of {wire}"), shell(f"{wire}_b", f"echo bad of {wire}; exit 3"))
    return [
        Answer(f"look over {wire}", calls, f"thought over {wire}"),
        Answer(f"answer over {wire}", thought=f"more over {wire}"),
    ]


SAID = [text for wire in WIRES for text in (f"ask over {wire}", f"look over {wire}", f"answer over {wire}")]
OUTPUTS = [f"{kind} of {wire}" for wire in WIRES for kind in ("out", "bad")]


async def entered(client: Client) -> None:
    await client.initialize(capabilities={"experimentalApi": True})
    await client.tell("initialized")


async def asked(client: Client, thread: str, words: str, refusals: Sequence[str] = ()) -> None:
    """Run a turn, which has to complete. `refusals` are the provider's refusals, which a failure reports."""
    asked = {"threadId": thread, "input": [{"type": "text", "text": words}]}
    await client.call("turn/start", asked)
    ended = await client.expect("turn/completed")
    assert ended["params"]["turn"]["status"] == "completed", (ended["params"]["turn"]["error"], refusals)


async def play_here(place: Place, served: Mapping[str, Strict]) -> str:
    """Run a turn over each API, each with a server of its own; return the thread's id."""
    thread = ""
    place.tables = "".join(PROVIDER.format(name=wire, row=ROWS[wire], url=place.url) for wire in WIRES)
    place.configure()
    for wire, strict in served.items():
        author = Author(strict, answers(wire))
        place.model.author = author
        chosen = {"modelProvider": wire, "model": strict.model}
        async with place.server(initialize=False) as server:
            await entered(server.client)
            if thread:
                await server.client.call("thread/resume", {"threadId": thread, **chosen})
            else:
                started = await server.client.call("thread/start", {"cwd": str(place.workspace), **chosen})
                thread = started["thread"]["id"]
            await asked(server.client, thread, f"ask over {wire}", author.refusals)
        assert (author.refusals, author.answers) == ([], [])
    place.model.author = None
    return thread


async def play_back(place: Place, served: Mapping[str, Strict], thread: str, said: Sequence[str]) -> None:
    """Run a turn over each API on the thread that codex has extended, and check that each is sent all of it."""
    for wire, strict in served.items():
        author = Author(strict, [Answer(f"back over {wire}")])
        place.model.author = author
        async with place.server(initialize=False) as server:
            await entered(server.client)
            chosen = {"modelProvider": wire, "model": strict.model}
            await server.client.call("thread/resume", {"threadId": thread, **chosen})
            assert words_of(await turns_of(server.client, thread)) == said
            await asked(server.client, thread, "back", author.refusals)
        assert [each for each in author.refusals if "encrypted content" not in each] == []
        body = json.dumps(place.model.requests[-1].body)
        assert [text for text in (*said, *OUTPUTS) if text not in body] == []
        said = [*said, "back", f"back over {wire}"]


async def turns_of(client: Client, thread: str) -> list[Json]:
    read = await client.call("thread/read", {"threadId": thread, "includeTurns": True})
    return [item for turn in read["thread"]["turns"] for item in turn["items"]]


def words_of(items: Sequence[Json]) -> list[str]:
    said = []
    for item in items:
        if item["type"] == "userMessage":
            said.append("".join(part.get("text", "") for part in item["content"]))
        elif item["type"] == "agentMessage":
            said.append(item["text"])
    return said


def told_everything(request: ModelRequest) -> None:
    """Check that the model is sent all messages, all calls with their outputs, and nothing that only this
    server knows.
    """
    texts = {*request.texts(), *request.texts("assistant")}
    assert [text for text in SAID if text not in texts] == []
    called = [item["call_id"] for item in request.input if item["type"] == "function_call"]
    outputs = request.outputs()
    assert len(called) == len({*called}) == len(OUTPUTS)
    assert {*called} == {*outputs}
    assert [text for text in OUTPUTS if not any(text in output for output in outputs.values())] == []
    assert '"origin"' not in json.dumps(request.body)


@pytest.mark.parametrize("version", ["0.169", "0.171"])
async def test_interchange_of_a_thread_over_all_apis(tmp_path: Path, version: str) -> None:
    codex, served = peer(version), providers()
    async with place_in(tmp_path) as place:
        thread = await play_here(place, served)
        place.model.replies[:] = [reply(says("of codex", "msg-of-codex"))]
        async with place.server(command=codex, initialize=False) as server:
            await entered(server.client)
            await server.client.call("thread/resume", {"threadId": thread})
            shown = await turns_of(server.client, thread)
            assert words_of(shown) == SAID
            ran = [item["aggregatedOutput"].strip() for item in shown if item["type"] == "commandExecution"]
            assert ran == OUTPUTS
            await asked(server.client, thread, "to codex")
        told_everything(place.model.requests[-1])
        await play_back(place, served, thread, [*SAID, "to codex", "of codex"])


async def test_interchange_of_a_thread_over_all_apis_with_codex_058(tmp_path: Path) -> None:
    codex, served = peer("0.58"), providers()
    async with place_in(tmp_path) as place:
        thread = await play_here(place, served)
        place.model.replies[:] = [reply(says("of codex"))]
        async with place.server(command=codex) as server:
            (path,) = place.rollouts()
            resumed = await server.client.resume(path=str(path))
            shown = [each["message"] for each in resumed["initialMessages"] if "message" in each]
            assert [text for text in shown if "over" in text and "thought" not in text] == SAID
            await server.client.turn(resumed["conversationId"], "to codex")
        told_everything(place.model.requests[-1])
        await play_back(place, served, thread, [*SAID, "to codex", "of codex"])
