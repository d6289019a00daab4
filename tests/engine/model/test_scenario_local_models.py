"""Models that the server does not know, over both APIs of providers: its assumptions, and its requests for facts."""

import json

import pytest

from app_server.engine.support.images import BROKEN
from app_server_protocol.encoding import Json
from tests.support.pictures import PNG, picture_url
from tests.support.scripted_model import (
    Reply,
    begins_to_say,
    calls,
    chat_reply,
    done,
    failure,
    reply,
    says,
    word,
)
from tests.support.thread_client import ended, items, notified, say, start, turn
from tests.support.world import MakeWorld, World

pytestmark = pytest.mark.scenario

WIRES = pytest.mark.parametrize("wire", ["responses", "chat"])

TOO_LONG = (
    "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens.",
    "the request exceeds the available context size. try increasing the context size",
    "The number of tokens to keep from the initial prompt is greater than the context length.",
    "Prompt contains 40000 tokens, too large for model with 32768 maximum context length",
    "prompt is too long: 210000 tokens > 200000 maximum",
    "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
)


def answers(wire: str, *words: str, used: int = 15) -> Reply:
    """Return a message with these words, one delta for each."""
    if wire == "chat":
        usage = {"prompt_tokens": used - 5, "completion_tokens": 5, "total_tokens": used}
        return chat_reply(*({"content": each} for each in words), usage=usage)
    return reply(begins_to_say(), *map(word, words), says("".join(words)), input=used - 5)


@WIRES
async def test_a_context_is_compacted_at_nine_tenths_of_its_window(world: MakeWorld, wire: str) -> None:
    replies = answers(wire, "a", used=26_999), answers(wire, "b", used=27_000), answers(wire, "SUMMARY")
    config = {"model_context_window": 30_000}
    async with world(*replies, answers(wire, "c"), config=config, provider={"wire_api": wire}) as w:
        thread = await start(w.client, model="local")
        for _ in range(3):
            await say(w.client, thread)
        kinds = [item["type"] for item in items(w)]
        assert kinds == [
            *("userMessage", "agentMessage") * 2,
            "contextCompaction",
            "userMessage",
            "agentMessage",
        ]
    assert "SUMMARY" in str(w.model.requests[-1].body)


@WIRES
async def test_a_window_that_nobody_knows_is_assumed_to_be_large(world: MakeWorld, wire: str) -> None:
    replies = answers(wire, "a", used=244_799), answers(wire, "b", used=244_800), answers(wire, "SUMMARY")
    async with world(*replies, answers(wire, "c"), provider={"wire_api": wire}) as w:
        thread = await start(w.client, model="local")
        for _ in range(3):
            await say(w.client, thread)
        assert [item["type"] for item in items(w)].count("contextCompaction") == 1
        windows = {
            each["tokenUsage"]["modelContextWindow"] for each in notified(w, "thread/tokenUsage/updated")
        }
        assert windows == {258_400}


async def test_a_known_model_is_compacted_by_the_window_that_the_user_says(world: MakeWorld) -> None:
    """A gateway may offer a smaller window than the model's maker."""
    replies = (
        answers("responses", "a", used=27_000),
        answers("responses", "SUMMARY"),
        answers("responses", "b"),
    )
    async with world(*replies, config={"model_context_window": 30_000}) as w:
        thread = await start(w.client, model="gpt-5")
        await say(w.client, thread)
        await say(w.client, thread)
        assert [item["type"] for item in items(w)].count("contextCompaction") == 1


@WIRES
@pytest.mark.parametrize("words", TOO_LONG)
async def test_a_provider_may_say_in_words_that_the_conversation_is_too_long(
    world: MakeWorld, wire: str, words: str
) -> None:
    """The next turn begins with a compaction; otherwise every later turn would fail."""
    refusal = failure(400, {"error": {"message": words}})
    replies = answers(wire, "a"), refusal, answers(wire, "SUMMARY"), answers(wire, "b")
    async with world(*replies, provider={"wire_api": wire}) as w:
        thread = await start(w.client, model="local")
        await say(w.client, thread)
        failed = await ended(w.client, await turn(w.client, thread))
        assert failed["error"]["codexErrorInfo"] == "contextWindowExceeded"
        assert (await ended(w.client, await turn(w.client, thread)))["items"][0]["text"] == "b"
        assert [item["type"] for item in items(w)].count("contextCompaction") == 1


@WIRES
async def test_so_it_is_over_the_conversation_api(world: MakeWorld, wire: str) -> None:
    refusal = failure(400, {"error": TOO_LONG[0]})
    replies = answers(wire, "a"), refusal, answers(wire, "SUMMARY"), answers(wire, "b")
    async with world(*replies, provider={"wire_api": wire}) as w:
        conversation = await w.open(model="local")
        await w.client.turn(conversation, "one")
        assert len((await w.client.turn(conversation, "two")).of("error")) == 1
        third = await w.client.turn(conversation, "three")
        assert third.last_message == "b"
        assert "Compact task completed" in [each["message"] for each in third.of("agent_message")]
        assert third.of("task_started")[0]["model_context_window"] is None, "as codex 0.58 shows it"


async def test_over_chat_completions_text_comes_in_pieces_and_tokens_are_counted(world: MakeWorld) -> None:
    async with world(answers("chat", "Hel", "lo", used=12), provider={"wire_api": "chat"}) as w:
        thread = await start(w.client)
        await say(w.client, thread)
        assert [each["delta"] for each in notified(w, "item/agentMessage/delta")] == ["Hel", "lo"]
        [counted] = notified(w, "thread/tokenUsage/updated")
        assert counted["tokenUsage"]["total"]["totalTokens"] == 12
        assert w.model.requests[0].body["stream_options"] == {"include_usage": True}


async def test_the_conversation_api_shows_of_chat_completions_what_codex_058_does(world: MakeWorld) -> None:
    for switched, deltas in ((False, []), (True, ["Hel", "lo"])):
        config = {"features": {"chat_deltas": switched}}
        async with world(answers("chat", "Hel", "lo"), provider={"wire_api": "chat"}, config=config) as w:
            said = await w.client.turn(await w.open())
        assert [each["delta"] for each in said.of("agent_message_delta")] == deltas
        assert said.last_message == "Hello"


async def test_a_provider_that_does_not_count_tokens_is_not_asked_again(world: MakeWorld) -> None:
    refusal = failure(400, {"error": {"message": "Unrecognized request argument supplied: stream_options"}})
    replies = refusal, chat_reply({"content": "a"}), chat_reply({"content": "b"})
    async with world(*replies, provider={"wire_api": "chat", "request_max_retries": 0}) as w:
        thread = await start(w.client)
        for text in ("a", "b"):
            assert (await ended(w.client, await turn(w.client, thread)))["items"][0]["text"] == text
        assert ["stream_options" in each.body for each in w.model.requests] == [True, False, False]
        assert notified(w, "error") == []


@WIRES
async def test_a_broken_picture_costs_one_message(world: MakeWorld, wire: str) -> None:
    """A provider refuses a request with a broken picture, and the picture would be in every later request of the
    thread.
    """
    look: Json = {"path": "broken.png"}
    if wire == "chat":
        function = {"name": "view_image", "arguments": json.dumps(look)}
        looks = chat_reply(
            {"tool_calls": [{"index": 0, "id": "c1", "function": function}]}, finish="tool_calls"
        )
    else:
        looks = reply(calls("view_image", look))
    broken = PNG[:50] + b"rubbish" * 20
    replies = looks, answers(wire, "a"), answers(wire, "b")
    async with world(*replies, provider={"wire_api": wire}, files={"broken.png": broken}) as w:
        thread = await start(w.client, cwd=str(w.workspace))
        sent: list[Json] = [
            {"type": "text", "text": "look", "text_elements": []},
            {"type": "image", "url": picture_url(broken), "detail": None},
            {"type": "localImage", "path": str(w.workspace / "broken.png"), "detail": None},
            {"type": "image", "url": picture_url(PNG), "detail": None},
        ]
        await say(w.client, thread, input=sent)
        await say(w.client, thread)
        assert items(w)[0]["content"] == sent, "clients are shown what was sent"
        assert "imageView" not in [item["type"] for item in items(w)]
    for request in w.model.requests:
        asked = json.dumps(request.body, ensure_ascii=False)
        assert (asked.count(picture_url(PNG)), asked.count("data:image/")) == (1, 1)
    assert asked.count(BROKEN) == 3, "the model is told of each"


async def test_over_the_conversation_api_only_what_has_no_pixels_is_broken(world: MakeWorld) -> None:
    """codex 0.58 sends everything that begins like a picture."""
    wrong_sum = PNG[:-4] + bytes(4)
    files = {"broken.png": PNG[:50] + b"rubbish" * 20, "sum.png": wrong_sum}
    looks = [calls("view_image", {"path": name}, name) for name in files]
    async with world(reply(*looks), reply(says("seen")), files=files) as w:
        items: list[Json] = [
            {"type": "image", "data": {"image_url": "data:image/png;base64,AAAA"}},
            *({"type": "localImage", "data": {"path": str(w.workspace / name)}} for name in files),
        ]
        await w.client.turn(await w.open(), items=items)
    asked = json.dumps(w.model.requests[-1].body)
    assert (asked.count(picture_url(wrong_sum)), asked.count("data:image/"), asked.count(BROKEN)) == (2, 3, 2)


def thinks(wire: str) -> Reply:
    if wire == "chat":
        return chat_reply({"reasoning": "raw "}, {"reasoning_content": "thought"}, {"content": "Done"})
    item: Json = {"type": "reasoning", "id": "rs-1", "summary": []}
    pieces = (
        {"type": "response.reasoning_text.delta", "delta": d, "content_index": 0} for d in ("raw ", "thought")
    )
    whole = {**item, "content": [{"type": "reasoning_text", "text": "raw thought"}]}
    return reply({"type": "response.output_item.added", "item": item}, *pieces, done(whole), says("Done"))


@WIRES
async def test_raw_reasoning_is_shown_and_kept(world: MakeWorld, wire: str) -> None:
    """Models with open weights provide no other reasoning."""
    async with world(thinks(wire), provider={"wire_api": wire}) as w:
        thread = await start(w.client)
        await say(w.client, thread)
        shown = next(item for item in items(w) if item["type"] == "reasoning")
        assert (shown["summary"], shown["content"]) == ([], ["raw thought"])
        assert [each["delta"] for each in notified(w, "item/reasoning/textDelta")] == ["raw ", "thought"]
    async with world() as w:
        read = await w.client.call("thread/read", {"threadId": thread, "includeTurns": True})
        assert read["thread"]["turns"][0]["items"][1] == shown


@WIRES
async def test_the_conversation_api_shows_raw_reasoning_on_request_only(world: MakeWorld, wire: str) -> None:
    for asked in (False, True):
        config = {"show_raw_agent_reasoning": asked}
        async with world(thinks(wire), provider={"wire_api": wire}, config=config) as w:
            said = await w.client.turn(await w.open())
        raw = [kind for kind in said.kinds() if "raw_content" in kind]
        assert bool(raw) is asked


WRITTEN = '<tool_call>\n{"name": "shell", "arguments": {"command": ["touch", "made"]}}\n</tool_call>'
LISTED = '{"name": "other_tool", "arguments": {}}'


@pytest.mark.parametrize(
    ("provider", "said", "told"),
    [
        ({"name": "groq", "wire": "chat"}, WRITTEN, 1),
        ({"wire": "responses"}, f"I make it:\n{WRITTEN}", 1),
        ({"name": "groq", "wire": "chat"}, LISTED, 0),
        ({"name": "groq", "wire": "chat"}, f"Write this:\n{WRITTEN}\nand it is made.", 0),
    ],
)
async def test_a_call_written_as_text_where_nothing_reads_it_is_told_once(
    world: MakeWorld, provider: Json, said: str, told: int
) -> None:
    async with world(*(answers(provider["wire"], said) for _ in range(2)), provider=provider) as w:
        thread = await start(w.client)
        await say(w.client, thread)
        await say(w.client, thread)
        notices = [each["message"] for each in notified(w, "warning")]
        assert len([each for each in notices if "wrote a call as text" in each]) == told
        assert items(w)[-1]["text"] == said
        assert not (w.workspace / "made").exists()


@pytest.mark.parametrize(
    ("ending", "advice"),
    [
        ("", "that of most servers ends in `/v1`"),
        ("/v1/chat/completions", "take `/chat/completions` off the end of `base_url`"),
        ("/v1", "it may have another of the APIs"),
    ],
)
async def test_an_address_at_which_nothing_is_served_is_named_with_the_remedy(
    world: MakeWorld, ending: str, advice: str
) -> None:
    def with_ending(w: World) -> None:
        file = w.home / "config.toml"
        text = file.read_text()
        address = text.partition('base_url = "')[2].partition('"')[0]
        file.write_text(text.replace(address, f"{address.removesuffix('/v1')}{ending}"))

    body: Json = {"error": {"message": "File Not Found", "type": "not_found_error", "code": 404}}
    async with world(failure(404, body), provider={"wire": "chat"}, before=with_ending) as w:
        done = await ended(w.client, await turn(w.client, await start(w.client)))
        assert f"{w.model.requests[0].path}; " in done["error"]["message"]
        assert advice in done["error"]["message"]
