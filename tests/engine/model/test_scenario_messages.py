"""Threads over the Anthropic Messages API, with a provider as strict as Claude."""

import json
from pathlib import Path

import pytest

from app_server_protocol.encoding import Json
from tests.support.claude import StrictClaude, claude_reply, events, shell, stream, text, thinking, tool_use
from tests.support.pictures import PNG, picture_url
from tests.support.scripted_model import Reply, chat_reply, failure, reply, says
from tests.support.thread_client import ended, items, join, notified, say, start, turn, words
from tests.support.world import MakeWorld, World

pytestmark = pytest.mark.scenario

CLAUDE = "claude-opus-5-5"
MESSAGES: Json = {"wire": "messages", "experimental_bearer_token": "sk-ant-secret"}
CONFIG: Json = {"model": CLAUDE}


def kinds(message: Json) -> list[str]:
    return [block["type"] for block in message["content"]]


def sent(w: World, request: int = -1) -> list[Json]:
    messages: list[Json] = w.model.requests[request].body["messages"]
    return messages


async def test_a_turn_with_parallel_calls_and_thoughts_between_them(world: MakeWorld) -> None:
    claude = StrictClaude(
        [thinking("Two looks."), text("I look."), shell("echo one", "toolu_1"), shell("exit 3", "toolu_2")],
        [thinking("One more."), shell("echo three", "toolu_3")],
        [thinking(""), text("Done.")],
    )
    async with world(provider=MESSAGES, config=CONFIG) as w:
        w.model.author = claude
        thread = await start(w.client)
        done = await ended(w.client, await turn(w.client, thread, "look"))
        assert done["status"] == "completed"
        assert claude.refusals == []
        asked = w.model.requests[0]
        assert asked.path.endswith("/messages")
        assert asked.headers["x-api-key"] == "sk-ant-secret"
        assert asked.headers["anthropic-version"] == "2023-06-01"
        assert "authorization" not in asked.headers
        results = sent(w)[2]["content"]
        assert [each.get("is_error", False) for each in results] == [False, True]
        assert kinds(sent(w)[1]) == ["thinking", "text", "tool_use", "tool_use"]
        shown = items(w, kind="reasoning")
        assert [each["summary"] for each in shown[:2]] == [["Two looks."], ["One more."]]
        usage = notified(w, "thread/tokenUsage/updated")[0]["tokenUsage"]["last"]
        assert (usage["inputTokens"], usage["outputTokens"]) == (10, 5)


async def test_a_thread_goes_on_after_a_restart_as_before(world: MakeWorld) -> None:
    """Pictures, failed tools and an interrupted turn are sent unchanged: Claude checks everything before a thought."""
    picture = [*words("what is it?"), {"type": "image", "url": picture_url(PNG)}]
    claude = StrictClaude(
        [thinking("A dot."), text("A dot."), tool_use("view_image", {"path": "dot.png"}, "toolu_0")],
        [thinking("Seen."), text("Black.")],
        [thinking("Long."), shell("exit 1", "toolu_1"), shell("sleep 600", "toolu_2")],
        [thinking("Again."), text("Here I am.")],
        [thinking("And again."), text("Still here.")],
    )
    async with world(provider=MESSAGES, config=CONFIG, files={"dot.png": PNG}) as w:
        w.model.author = claude
        thread = await start(w.client)
        first = await w.client.call("turn/start", {"threadId": thread, "input": picture})
        assert (await ended(w.client, first["turn"]["id"]))["status"] == "completed"
        id = await turn(w.client, thread, "wait")
        await w.client.expect(
            lambda m: (
                m.get("method") == "item/completed" and m["params"]["item"].get("type") == "commandExecution"
            )
        )
        await w.client.call("turn/interrupt", {"threadId": thread, "turnId": id})
        assert (await ended(w.client, id))["status"] == "interrupted"
        await say(w.client, thread, "go on")
        assert claude.refusals == []
    async with world(provider=MESSAGES, config=CONFIG) as w:
        w.model.author = claude
        await join(w.client, thread)
        done = await ended(w.client, await turn(w.client, thread, "again"))
        assert done["items"][-1]["text"] == "Still here."
        assert claude.refusals == []


async def test_thoughts_that_are_refused_are_forgotten_and_the_request_sent_once_more(
    world: MakeWorld,
) -> None:
    """This happens after tools have changed: Claude refuses thoughts that it has signed for other tools."""
    claude = StrictClaude([thinking("Hm."), text("Hello")], [thinking("Hm."), text("Again")])
    async with world(provider=MESSAGES, config=CONFIG) as w:
        w.model.author = claude
        thread = await start(w.client)
        await say(w.client, thread)
    async with world(provider=MESSAGES, config={**CONFIG, "developer_instructions": "Be brief."}) as w:
        w.model.author = claude
        await w.client.call("thread/resume", {"threadId": thread, "baseInstructions": "Be otherwise."})
        done = await ended(w.client, await turn(w.client, thread, "more"))
        assert done["items"][-1]["text"] == "Again"
        assert len(claude.refusals) == 1
        assert "thinking" not in kinds(sent(w)[1])
        assert notified(w, "error") == []


def told_over(wire: str, said: str) -> Reply:
    match wire:
        case "chat":
            return chat_reply({"reasoning": f"Thought of {said}."}, {"content": said})
        case "messages":
            return claude_reply(thinking(f"Thought of {said}.", "sig"), text(said))
        case _:
            return reply(
                {
                    "type": "response.output_item.done",
                    "item": {"type": "reasoning", "summary": [], "encrypted_content": "secret"},
                },
                says(said),
            )


async def test_a_thread_changes_its_api_and_back(world: MakeWorld) -> None:
    """All messages are sent to the other API; thoughts are sent only to the API that they came from."""
    tables = "\n".join(
        f'[model_providers.{wire}]\nname = "{wire}"\nbase_url = "BASE"\nwire = "{wire}"'
        for wire in ("chat", "messages", "responses")
    )
    wires = ("chat", "messages", "responses", "messages", "chat")
    thread = ""
    for n, wire in enumerate(wires):

        def with_address(w: World) -> None:
            file = Path(w.home / "config.toml")
            url = file.read_text().partition('base_url = "')[2].partition('"')[0]
            file.write_text(file.read_text().replace("BASE", url))

        async with world(told_over(wire, f"word{n}"), tables=tables, before=with_address) as w:
            if n == 0:
                thread = await start(w.client, modelProvider=wire, model=CLAUDE)
            else:
                await w.client.call("thread/resume", {"threadId": thread, "modelProvider": wire})
            done = await ended(w.client, await turn(w.client, thread, f"ask{n}"))
            assert done["status"] == "completed", done["error"]
            body = json.dumps(w.model.requests[0].body)
            for before in range(n):
                assert f"ask{before}" in body
                assert f"word{before}" in body
            own = [before for before in range(n) if wires[before] == wire and wire != "responses"]
            for before in range(n):
                assert (f"Thought of word{before}." in body) == (before in own)


async def test_a_thread_of_this_api_is_stored_as_items_that_everybody_knows(world: MakeWorld) -> None:
    claude = StrictClaude([thinking("Hm."), shell("exit 1", "toolu_1")], [text("Done.")])
    async with world(provider=MESSAGES, config=CONFIG) as w:
        w.model.author = claude
        await say(w.client, await start(w.client))
        lines = [json.loads(line) for line in w.rollouts()[0].read_text().splitlines()]
        stored = [line["payload"] for line in lines if line["type"] == "response_item"]
        known = {"message", "reasoning", "function_call", "function_call_output"}
        assert {each["type"] for each in stored} == known
        raw = json.dumps(w.client.received())
        assert '"origin"' not in raw
        assert "signature" not in raw


def error(kind: str, words: str) -> Json:
    return {"type": "error", "error": {"type": kind, "message": words}}


OVERLOADED = error("overloaded_error", "Overloaded")


@pytest.mark.parametrize(
    ("answer", "kind", "said"),
    [
        (failure(529, OVERLOADED), "serverOverloaded", "529"),
        (Reply(body=stream([*events(text("So"))[:4], OVERLOADED])), "serverOverloaded", "Overloaded"),
        (failure(413, error("request_too_large", "x")), "contextWindowExceeded", "too long"),
        (failure(404, error("not_found_error", f"model: {CLAUDE}")), "modelNotFound", f"model: {CLAUDE}"),
        (failure(400, error("invalid_request_error", "messages: odd")), "badRequest", "messages: odd"),
        (claude_reply(text("I can"), stop="refusal"), "other", "refusal"),
    ],
)
async def test_errors_of_the_provider_end_the_turn_with_its_words(
    world: MakeWorld, answer: Reply, kind: str, said: str
) -> None:
    async with world(answer, provider=MESSAGES, config=CONFIG) as w:
        done = await ended(w.client, await turn(w.client, await start(w.client)))
        assert done["status"] == "failed"
        assert done["error"]["codexErrorInfo"] == kind
        assert said in done["error"]["message"]


@pytest.mark.parametrize(
    "host",
    ["bedrock-runtime.us-east-1.amazonaws.com", "us-east5-aiplatform.googleapis.com"],
)
async def test_clouds_that_want_signed_requests_are_named(world: MakeWorld, host: str) -> None:
    provider = {**MESSAGES, "base_url": f"https://{host}/v1"}
    async with world(provider=provider, config=CONFIG) as w:
        done = await ended(w.client, await turn(w.client, await start(w.client)))
        assert "use a gateway such as LiteLLM" in done["error"]["message"]


async def test_a_provider_that_pauses_is_asked_on_three_times(world: MakeWorld) -> None:
    replies = [claude_reply(text(f"Part {n}."), stop="pause_turn", id=f"msg_{n}") for n in range(5)]
    async with world(*replies, provider=MESSAGES, config=CONFIG) as w:
        done = await ended(w.client, await turn(w.client, await start(w.client)))
        assert done["status"] == "completed"
        assert len(w.model.requests) == 4
        assert sent(w)[-1]["role"] == "assistant"


async def test_the_history_is_compacted_with_the_tools_that_it_has_called(world: MakeWorld) -> None:
    claude = StrictClaude(
        [thinking("Hm."), shell("true", "toolu_1")],
        [thinking("Hm."), text("Done.")],
        [thinking("Sum."), text("SUMMARY")],
        [thinking("Hm."), text("On.")],
    )
    async with world(provider=MESSAGES, config=CONFIG) as w:
        w.model.author = claude
        thread = await start(w.client)
        await say(w.client, thread)
        await w.client.call("thread/compact/start", {"threadId": thread})
        await w.client.expect(
            lambda m: (
                m.get("method") == "item/completed" and m["params"]["item"]["type"] == "contextCompaction"
            )
        )
        await say(w.client, thread, "go on")
        assert claude.refusals == []
        assert "SUMMARY" in json.dumps(sent(w))


async def test_commands_do_not_get_the_key_of_anthropic(world: MakeWorld) -> None:
    """Anthropic's provider is built in, so its variable is withheld without any setting."""
    claude = StrictClaude([shell("echo key=$ANTHROPIC_API_KEY", "toolu_1")], [text("Done.")])
    environment = {"ANTHROPIC_API_KEY": "sk-ant-of-the-user"}
    async with world(provider=MESSAGES, config=CONFIG, environment=environment) as w:
        w.model.author = claude
        await say(w.client, await start(w.client))
        assert '"key=\\n"' in sent(w)[2]["content"][0]["content"]
        assert "sk-ant-of-the-user" not in json.dumps([w.client.received(), sent(w)])
