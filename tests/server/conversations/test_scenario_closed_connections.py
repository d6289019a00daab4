"""Servers that close the connection, without a byte of an answer, on a request that exceeds their window."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from anyio.abc import SocketStream

from app_server.cli.demo.scripted_model import EVENT_STREAM, LAST_CHUNK, ReceivedRequest, response_head
from app_server.engine.model import model_client
from app_server_protocol.encoding import Json
from tests.support.scripted_model import Reply, ScriptedModel, chat_reply, failure
from tests.support.thread_client import ended, items, notified, say, start, turn
from tests.support.world import MakeWorld, world_with

pytestmark = pytest.mark.scenario

WORDS = "word " * 300


@dataclass(slots=True)
class ClosingModel(ScriptedModel):
    """Model that answers requests up to a size, and closes the connection on larger ones."""

    most: int = 16_000
    """Maximum size of a request, in bytes."""
    begins: bool = False
    """Whether the head of a response comes before the connection closes."""
    closed: int = 0
    """Number of requests on which the connection was closed."""

    async def respond(self, request: ReceivedRequest, stream: SocketStream) -> bool:
        if request.method == "POST" and len(request.body) > self.most:
            self.closed += 1
            if self.begins:
                await stream.send(response_head(200, EVENT_STREAM) + LAST_CHUNK)
            return False
        return await ScriptedModel.respond(self, request, stream)


def answered(request: Json) -> Reply:
    is_summary = "summar" in str(request.body["messages"][-1]["content"]).lower()
    return chat_reply({"content": "SUMMARY" if is_summary else f"{len(request.body['messages'])} {WORDS}"})


def counted(request: Json) -> Reply:
    usage = {"prompt_tokens": len(str(request.body)) // 5, "completion_tokens": 5}
    return chat_reply({"content": "done"}, usage=usage)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_client, "backoff", lambda attempt, rng: 0.001)


PROVIDER: Json = {"name": "llamacpp", "wire": "chat", "stream_max_retries": 2, "request_max_retries": 1}


@pytest.mark.parametrize("begins", [False, True])
@pytest.mark.parametrize("config", [{"model_context_window": 9_000}, {"model_context_window": 100_000}])
async def test_a_thread_goes_on_after_its_server_has_closed_the_connection(
    tmp_path: Path, config: Json, *, begins: bool
) -> None:
    """The turn that exceeds the window reports it; the next one begins with a compaction."""
    model = ClosingModel(author=answered, begins=begins)
    async with world_with(tmp_path, model, config={"model": "local", **config}, provider=PROVIDER) as w:
        thread = await start(w.client)
        ends = [await ended(w.client, await turn(w.client, thread, f"{n} {WORDS}")) for n in range(18)]
        failed = [n for n, each in enumerate(ends) if each["status"] == "failed"]
        assert len(failed) == 1, [each.get("error") for each in ends]
        error = ends[failed[0]]["error"]
        assert error["codexErrorInfo"] == "contextWindowExceeded"
        assert "closed the connection without an answer" in error["message"]
        assert [item["type"] for item in items(w)].count("contextCompaction") >= 2
        assert model.closed <= 6
        again = await start(w.client)
        assert (await ended(w.client, await turn(w.client, again)))["status"] == "completed"


async def test_a_stored_thread_is_compacted_although_nothing_was_answered_yet(tmp_path: Path) -> None:
    config, provider = {"model": "local", "model_context_window": 100_000}, PROVIDER
    model = ClosingModel(author=answered, most=1 << 20)
    async with world_with(tmp_path, model, config=config, provider=provider) as w:
        thread = await start(w.client)
        for n in range(8):
            await say(w.client, thread, f"{n} {WORDS}")
    small = ClosingModel(author=answered)
    async with world_with(tmp_path, small, config=config, provider=provider) as w:
        await w.client.call("thread/resume", {"threadId": thread})
        failed = await ended(w.client, await turn(w.client, thread))
        assert failed["error"]["codexErrorInfo"] == "contextWindowExceeded"
        done = await ended(w.client, await turn(w.client, thread))
        assert done["status"] == "completed", done["error"]
        assert "SUMMARY" in str(small.requests[-1].body)


async def test_a_server_that_never_answers_is_no_matter_of_the_window(tmp_path: Path) -> None:
    model = ClosingModel(most=0)
    async with world_with(tmp_path, model, config={"model": "local"}, provider=PROVIDER) as w:
        thread = await start(w.client)
        for _ in range(2):
            failed = await ended(w.client, await turn(w.client, thread, WORDS * 8))
            assert "closed the connection without" not in failed["error"]["message"]
            assert failed["error"]["codexErrorInfo"] != "contextWindowExceeded"


async def test_a_connection_that_broke_once_does_not_make_the_window_small(tmp_path: Path) -> None:
    """A guessed window refuses no request, and the first larger answer ends the guess."""
    model = ClosingModel(author=counted, most=1 << 20)
    provider = {**PROVIDER, "stream_max_retries": 0, "request_max_retries": 0}
    config = {"model": "local", "model_context_window": 100_000}
    async with world_with(tmp_path, model, config=config, provider=provider) as w:
        thread = await start(w.client)
        await say(w.client, thread)
        model.most = 0
        failed = await ended(w.client, await turn(w.client, thread, WORDS * 8))
        assert failed["error"]["codexErrorInfo"] == "contextWindowExceeded"
        model.most = 1 << 20
        for other in (thread, await start(w.client)):
            done = await ended(w.client, await turn(w.client, other, WORDS * 40))
            assert done["status"] == "completed", done["error"]
        asked = [str(request.body) for request in w.model.requests]
        assert WORDS * 40 in asked[-1]
        await say(w.client, thread)
        usage = notified(w, "thread/tokenUsage/updated")[-1]["tokenUsage"]
        assert usage["modelContextWindow"] == 95_000


async def test_a_refusal_is_followed_by_a_compaction_whatever_our_estimate_says(world: MakeWorld) -> None:
    """The provider says that the context is full, while a compaction would free too little by our estimate."""
    refused: Json = {
        "error": {"code": 400, "message": "the request exceeds the available context size", "n_ctx": 4_096}
    }
    usage = {"prompt_tokens": 400, "completion_tokens": 5}
    replies = (
        chat_reply({"content": "a"}, usage=usage),
        failure(400, refused),
        *(chat_reply({"content": each}, usage=usage) for each in ("SUMMARY", "c", "d")),
    )
    async with world(*replies, config={"model_context_window": 4_096}, provider={"wire_api": "chat"}) as w:
        thread = await start(w.client, model="local")
        await say(w.client, thread)
        failed = await ended(w.client, await turn(w.client, thread))
        assert failed["error"]["codexErrorInfo"] == "contextWindowExceeded"
        done = await ended(w.client, await turn(w.client, thread))
        assert done["status"] == "completed"
        assert "SUMMARY" in json.dumps(w.model.requests[-1].body)
        assert [item["type"] for item in items(w)].count("contextCompaction") == 1


async def test_a_second_refusal_without_an_answer_between_is_not_compacted_again(world: MakeWorld) -> None:
    refused = failure(
        400, {"error": {"message": "the request exceeds the available context size", "n_ctx": 4_096}}
    )
    first, summary = chat_reply({"content": "a"}), chat_reply({"content": "SUMMARY"})
    replies = first, refused, summary, refused, refused
    async with world(*replies, config={"model_context_window": 4_096}, provider={"wire_api": "chat"}) as w:
        thread = await start(w.client, model="local")
        for _ in range(4):
            await say(w.client, thread)
        assert [item["type"] for item in items(w)].count("contextCompaction") == 1
        assert len(notified(w, "error")) == 3
