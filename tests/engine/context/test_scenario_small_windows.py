"""Models with a small context window: their requests, and threads that outgrow the window."""

import json
from itertools import pairwise

import pytest

from app_server_protocol.encoding import Json
from tests.support.scripted_model import calls, chat_reply, failure, reply, says, script
from tests.support.thread_client import ended, items, notified, say, start, turn
from tests.support.world import MakeWorld, World

pytestmark = pytest.mark.scenario


def names(w: World, n: int = -1) -> list[str]:
    return [tool.get("name", "") for tool in w.model.requests[n].body["tools"]]


def tokens(body: Json) -> int:
    """Estimate the size of the input for the model's template, in tokens."""
    size = len(body["instructions"]) + len(json.dumps(body["tools"])) + len(str(body["input"]))
    return size // 4


@pytest.mark.parametrize(
    ("window", "most", "offered"), [(4_096, 420, 1), (8_192, 750, 2), (32_768, 2_050, 4)]
)
async def test_the_first_request_fits_its_window(
    world: MakeWorld, window: int, most: int, offered: int
) -> None:
    async with world(reply(says("hello")), config={"model_context_window": window}) as w:
        await say(w.client, await start(w.client, model="local"))
        body = w.model.requests[0].body
        assert tokens(body) <= most
        assert len(names(w)) == offered, names(w)
        assert "apply_patch" in body["instructions"]


async def test_goals_and_resources_are_offered_where_they_can_be_used(world: MakeWorld) -> None:
    async with world(reply(says("a")), reply(says("b")), reply(says("c"))) as w:
        thread = await start(w.client, model="local")
        await say(w.client, thread)
        assert not {"create_goal", "list_mcp_resources"} & set(names(w))
        goal = {"threadId": thread, "objective": "rest", "status": "paused"}
        await w.client.call("thread/goal/set", goal)
        await say(w.client, thread)
        assert {"get_goal", "create_goal", "update_goal"} <= set(names(w))
    async with world(reply(says("a")), config={"features": {"goals": True}}) as w:
        await say(w.client, await start(w.client, model="local"))
        assert "create_goal" in names(w)


async def test_the_conversation_api_keeps_its_tools_unless_the_window_is_known_to_be_small(
    world: MakeWorld,
) -> None:
    async with world(reply(says("a"))) as w:
        await w.client.turn(await w.open(model="local"), "one")
        assert {"list_mcp_resources", "update_plan"} <= set(names(w))
    async with world(reply(says("a")), config={"model_context_window": 8_192}) as w:
        await w.client.turn(await w.open(model="local"), "one")
        assert {"list_mcp_resources", "update_plan"} <= set(names(w)), "as codex 0.58 over Responses"
    chosen = {"model_context_window": 8_192, "model_prompt": "small"}
    async with world(reply(says("a")), config=chosen) as w:
        await w.client.turn(await w.open(model="local"), "one")
        assert names(w) == ["shell"]
    answer = chat_reply({"content": "a"})
    window = {"model_context_window": 8_192}
    async with world(answer, config=window, provider={"wire_api": "chat"}) as w:
        await w.client.turn(await w.open(model="local"), "one")
        assert [tool["function"]["name"] for tool in w.model.requests[-1].body["tools"]] == ["shell"]


async def test_a_message_that_is_too_long_is_an_error_with_figures_and_not_sent(world: MakeWorld) -> None:
    """The thread goes on: the refused message is not in the history of later turns."""
    async with world(reply(says("fine")), config={"model_context_window": 4_096}) as w:
        thread = await start(w.client, model="local")
        failed = await ended(w.client, await turn(w.client, thread, "x " * 9_000))
        assert failed["error"]["codexErrorInfo"] == "contextWindowExceeded"
        words = failed["error"]["message"]
        assert "The model `local` has a window of 4,096 tokens" in words
        assert "instructions and tools" in words
        assert "your message 4," in words
        assert not w.model.requests
        await say(w.client, thread, "short")
        assert "x x x" not in str(w.model.requests[0].body["input"])


async def test_an_output_takes_an_eighth_of_a_small_window(world: MakeWorld) -> None:
    noise = reply(script("seq 1 5000"))
    async with world(noise, reply(says("done")), config={"model_context_window": 4_096}) as w:
        await say(w.client, await start(w.client, model="local"))
        output = w.model.requests[-1].body["input"][-1]["output"]
        assert len(str(output)) <= 512 * 4 * 1.5
        assert "5000" in str(output)


async def test_a_full_window_is_compacted_once_and_the_thread_goes_on(world: MakeWorld) -> None:
    long = "word " * 500
    turns = [reply(says(f"{long} {n}"), input=1_000 * n) for n in range(1, 4)]
    summary, rest = reply(says("SUMMARY " + "s" * 9_000)), [reply(says("short"), input=900) for _ in range(4)]
    replies = *turns, summary, *rest
    async with world(
        *replies, config={"model_context_window": 4_096}, provider={"wire_api": "responses"}
    ) as w:
        thread = await start(w.client, model="local")
        for n in range(6):
            done = await ended(w.client, await turn(w.client, thread, f"{n} " + "say " * 300))
            assert done["status"] == "completed", done
        kinds = [item["type"] for item in items(w)]
        assert "contextCompaction" in kinds
        places = [n for n, kind in enumerate(kinds) if kind == "contextCompaction"]
        assert all(later - earlier > 2 for earlier, later in pairwise(places))
        assert all(tokens(each.body) <= 4_096 for each in w.model.requests)


async def test_instructions_that_fill_the_window_are_never_compacted(world: MakeWorld) -> None:
    config = {"model_context_window": 4_096, "developer_instructions": "obey " * 3_000}
    async with world(config=config) as w:
        thread = await start(w.client, model="local")
        for _ in range(2):
            failed = await ended(w.client, await turn(w.client, thread))
            assert failed["error"]["codexErrorInfo"] == "contextWindowExceeded"
        assert not w.model.requests
        assert "contextCompaction" not in [item["type"] for item in items(w)]


async def test_calls_in_place_of_a_summary_are_refused_and_it_is_asked_for_once_more(
    world: MakeWorld,
) -> None:
    replies = (
        reply(says("a"), input=29_000),
        reply(calls("shell", {"command": ["touch", "made"]})),
        reply(says("SUMMARY")),
        reply(says("b")),
    )
    async with world(*replies, config={"model_context_window": 30_000}) as w:
        thread = await start(w.client, model="local")
        await say(w.client, thread)
        await say(w.client, thread)
        asked, again = w.model.requests[1].body, w.model.requests[2].body
        assert asked["tools"] == w.model.requests[0].body["tools"]
        assert asked["instructions"] == w.model.requests[0].body["instructions"]
        assert "Answer with the summary only." in str(again["input"])
        assert "SUMMARY" in str(w.model.requests[3].body["input"])
        assert "commandExecution" not in [item["type"] for item in items(w)]


async def test_a_summary_that_the_limit_of_outputs_has_cut_is_used(world: MakeWorld) -> None:
    replies = (
        chat_reply({"content": "a"}, usage={"prompt_tokens": 29_000, "completion_tokens": 1}),
        chat_reply({"content": "SUMMARY and"}, finish="length"),
        chat_reply({"content": "b"}),
    )
    config = {"model_context_window": 30_000}
    async with world(*replies, config=config, provider={"wire_api": "chat"}) as w:
        thread = await start(w.client, model="local")
        await say(w.client, thread)
        done = await ended(w.client, await turn(w.client, thread))
        assert done["status"] == "completed", done
        assert "SUMMARY and" in str(w.model.requests[2].body["messages"])


async def test_a_provider_that_counts_nothing_is_compacted_by_an_estimate(world: MakeWorld) -> None:
    long = [chat_reply({"content": "word " * 3_000}, usage=None) for _ in range(3)]
    replies = *long, chat_reply({"content": "SUMMARY"}, usage=None), chat_reply({"content": "b"}, usage=None)
    config = {"model_context_window": 10_000}
    async with world(*replies, config=config, provider={"wire_api": "chat"}) as w:
        thread = await start(w.client, model="local")
        for _ in range(3):
            await say(w.client, thread)
        assert "contextCompaction" in [item["type"] for item in items(w)]
        assert not notified(w, "error")


REFUSED: Json = {
    "error": {
        "code": 400,
        "message": "the request exceeds the available context size, try increasing it",
        "type": "exceed_context_size_error",
        "n_prompt_tokens": 5_000,
        "n_ctx": 4_096,
    }
}


@pytest.mark.parametrize("config", [{}, {"model_context_window": 100_000}])
async def test_a_window_that_a_refusal_names_counts_from_then_on(world: MakeWorld, config: Json) -> None:
    """It holds also in other threads, and has priority over the user's setting."""
    usage = {"prompt_tokens": 400, "completion_tokens": 5}
    replies = failure(400, REFUSED), *(chat_reply({"content": each}, usage=usage) for each in "ab")
    async with world(*replies, config=config, provider={"wire_api": "chat"}) as w:
        thread = await start(w.client, model="local")
        failed = await ended(w.client, await turn(w.client, thread, "hi"))
        assert failed["error"]["codexErrorInfo"] == "contextWindowExceeded"
        assert failed["error"]["message"].endswith("The window of the model is 4,096 tokens.")
        await say(w.client, thread, "again")
        await say(w.client, await start(w.client, model="local"), "elsewhere")
        sizes = [len(json.dumps(request.body)) for request in w.model.requests]
        assert sizes[0] > 3 * max(sizes[1:])
        assert [len(request.body["tools"]) for request in w.model.requests[1:]] == [1, 1]
        told = [each["tokenUsage"]["modelContextWindow"] for each in notified(w, "thread/tokenUsage/updated")]
        assert told[-1] == 4_096 * 95 // 100


@pytest.mark.parametrize(
    ("model", "chosen", "sent"),
    [
        ("gpt-6.2-sol", {}, None),
        ("gpt-6.2-sol", {"model_reasoning_summary": "auto"}, "auto"),
        ("gpt-5.1-codex", {}, "auto"),
        ("gpt-5.1-codex", {"model_reasoning_summary": "none"}, None),
    ],
)
async def test_a_summary_of_reasoning_is_asked_for_as_the_model_or_the_user_says(
    world: MakeWorld, model: str, chosen: Json, sent: str | None
) -> None:
    async with world(reply(says("a")), reply(says("b")), reply(says("c")), config=chosen) as w:
        thread = await start(w.client, model=model)
        await say(w.client, thread)
        await say(w.client, thread, summary="concise")
        asked = [request.body["reasoning"].get("summary") for request in w.model.requests]
        assert asked == [sent, "concise"]
        other = await start(w.client, model=model)
        target = {"type": "custom", "instructions": "look"}
        review = await w.client.call("review/start", {"threadId": other, "target": target})
        await ended(w.client, review["turn"]["id"])
        reviewed = w.model.requests[-1].body["reasoning"].get("summary")
        assert reviewed == (None if model == "gpt-6.2-sol" and not chosen else "detailed")


@pytest.mark.parametrize(("kind", "cuts"), [("ollama", True), ("any", False)])
async def test_a_request_that_ollama_has_cut_says_the_window(
    world: MakeWorld, *, kind: str, cuts: bool
) -> None:
    """Ollama cuts the input and answers the rest; the tokens that it counts are its window."""
    counts = (1_900, 2_048, 1_000, 500)
    replies = [
        chat_reply({"content": "a"}, usage={"prompt_tokens": read, "completion_tokens": 5}) for read in counts
    ]
    provider = {"wire_api": "chat", "quirks": {"list": kind}}
    async with world(*replies, config={"model": "local"}, provider=provider) as w:
        thread = await start(w.client)
        await say(w.client, thread, "hi")
        assert not [each for each in notified(w, "warning") if "Ollama" in each["message"]]
        await say(w.client, thread, "word " * 8_000)
        told = [each["message"] for each in notified(w, "warning") if "Ollama" in each["message"]]
        assert len(told) == cuts
        if cuts:
            assert told[0].startswith("Ollama read only 2,048 tokens of about 1")
            assert told[0].endswith(
                "; start it with OLLAMA_CONTEXT_LENGTH=65536 or set `model_context_window`."
            )
        await say(w.client, await start(w.client), "elsewhere")
        windows = [
            each["tokenUsage"]["modelContextWindow"] for each in notified(w, "thread/tokenUsage/updated")
        ]
        assert (windows[-1] == 2_048 * 95 // 100) is cuts
