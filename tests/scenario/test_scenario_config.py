"""Settings: where they come from, what wins, and what is said when they are wrong."""

import pytest

from protocol.base import Json
from tests.support.client import Refused
from tests.support.scripted_model import Reply, failure, reply, says, script
from tests.support.world import MakeWorld

DEEP = '[profiles.deep]\nmodel = "deep-model"\nmodel_reasoning_effort = "high"\n'


async def test_a_request_wins_over_a_profile_and_a_profile_over_the_file(world: MakeWorld) -> None:
    async with world(tables=DEEP) as w:
        plain = await w.client.call("newConversation", {})
        deep = await w.client.call("newConversation", {"profile": "deep"})
        both = await w.client.call("newConversation", {"profile": "deep", "model": "mine"})
        config = await w.client.call("newConversation", {"config": {"model": "dotted"}})
    assert (plain["model"], deep["model"], both["model"]) == ("scripted", "deep-model", "mine")
    assert (deep["reasoningEffort"], both["reasoningEffort"]) == ("high", "high")
    assert config["model"] == "dotted"


async def test_instructions_of_a_request_reach_the_model(world: MakeWorld) -> None:
    async with world(reply(says("ok"))) as w:
        told: Json = {"baseInstructions": "You are a tester.", "developerInstructions": "Be brief."}
        await w.client.turn(await w.open(**told))
    assert w.model.requests[0].body["instructions"] == "You are a tester."
    assert w.model.requests[0].texts("developer") == ["Be brief."]


@pytest.mark.parametrize(
    ("params", "word"),
    [
        ({"profile": "missing"}, "missing"),
        ({"modelProvider": "nobody"}, "nobody"),
        ({"config": {"approval_policy": "sometimes"}}, "approval_policy"),
        ({"config": {"model_context_window": "large"}}, "model_context_window"),
    ],
)
async def test_a_setting_that_is_wrong_is_named(world: MakeWorld, params: Json, word: str) -> None:
    async with world() as w:
        with pytest.raises(Refused) as refused:
            await w.client.call("newConversation", params)
        assert word in refused.value.message
        assert await w.client.call("newConversation", {})


@pytest.mark.parametrize(
    "content",
    [
        b'model = "x"\nmodel = [\n',
        b'model = "a"\nmodel = "b"\n',
        b"model = 5\n",
        b'model = "\xff"\n',
        b"\x00",
    ],
)
async def test_a_broken_file_is_an_answer_and_a_mended_one_works(world: MakeWorld, content: bytes) -> None:
    async with world(reply(says("ok"))) as w:
        good = (w.home / "config.toml").read_bytes()
        (w.home / "config.toml").write_bytes(content)
        with pytest.raises(Refused, match=r"config\.toml|`model`"):
            await w.client.call("newConversation", {})
        (w.home / "config.toml").write_bytes(good)
        assert (await w.client.turn(await w.open())).last_message == "ok"


async def test_saved_settings_are_shown_and_the_default_model_is_kept(world: MakeWorld) -> None:
    async with world(tables="# mine\n[tools]\nweb_search = true\n") as w:
        await w.client.call("setDefaultModel", {"model": "newer", "reasoningEffort": "low"})
        saved = (await w.client.call("getUserSavedConfig"))["config"]
        assert (saved["model"], saved["modelReasoningEffort"]) == ("newer", "low")
        assert saved["tools"]["webSearch"] is True
        assert (await w.client.call("newConversation", {}))["model"] == "newer"
        await w.client.call("setDefaultModel", {"model": None, "reasoningEffort": None})
        assert (await w.client.call("getUserSavedConfig"))["config"]["model"] is None
        assert "# mine" in (w.home / "config.toml").read_text()


async def test_what_a_provider_needs_is_sent(world: MakeWorld) -> None:
    provider = {
        "env_key": "MY_KEY",
        "http_headers": {"x-mine": "yes"},
        "env_http_headers": {"x-from-env": "MY_EXTRA"},
        "query_params": {"api-version": "1"},
    }
    environment = {"MY_KEY": "key-1", "MY_EXTRA": "extra"}
    async with world(reply(says("ok")), provider=provider, environment=environment) as w:
        await w.client.turn(await w.open())
    (request,) = w.model.requests
    assert request.path.endswith("/responses?api-version=1")
    assert request.headers["authorization"] == "Bearer key-1"
    assert (request.headers["x-mine"], request.headers["x-from-env"]) == ("yes", "extra")


async def test_a_missing_key_is_reported_with_its_instructions(world: MakeWorld) -> None:
    provider = {"env_key": "MY_KEY", "env_key_instructions": "Get one at the desk."}
    async with world(provider=provider) as w:
        turn = await w.client.turn(await w.open())
    (error,) = turn.of("error")
    assert "MY_KEY" in error["message"]
    assert "Get one at the desk." in error["message"]
    assert w.model.requests == []


@pytest.mark.parametrize(
    ("bad", "word"),
    [
        (failure(400, {"error": {"message": "boom-7"}}), "boom-7"),
        (failure(401, {"error": {"message": "boom-7"}}), "401"),
        (failure(500, {"error": {"message": "boom-7"}}), "500"),
        (Reply(body=b"data: {broken\n\n"), "response.completed"),
        (
            Reply(({"type": "response.failed", "response": {"error": {"code": "x", "message": "boom-7"}}},)),
            "boom-7",
        ),
    ],
)
async def test_a_failure_of_the_model_is_reported_and_the_next_turn_works(
    world: MakeWorld, bad: Reply, word: str
) -> None:
    async with world(bad, reply(says("again"))) as w:
        conversation = await w.open()
        turn = await w.client.turn(conversation, "first")
        assert word in turn.of("error")[-1]["message"]
        assert turn.last_message is None
        assert (await w.client.turn(conversation, "second")).last_message == "again"
    assert w.model.requests[1].texts() == ["first", "second"]


async def test_a_stream_that_breaks_is_tried_again(world: MakeWorld) -> None:
    cut = Reply(reply(says("half")).events[:1], cut=True)
    async with world(cut, reply(says("whole")), provider={"stream_max_retries": 2}) as w:
        turn = await w.client.turn(await w.open())
    assert turn.last_message == "whole"
    assert [e["message"] for e in turn.of("stream_error")] == ["Reconnecting... 1/2"]


async def test_the_environment_of_commands_has_no_keys(world: MakeWorld) -> None:
    environment = {"MY_API_KEY": "secret-1", "MY_PLAIN": "plain-1"}
    async with world(reply(script("env")), reply(says("ok")), environment=environment) as w:
        await w.client.turn(await w.open())
    output = w.model.requests[1].outputs()["c1"]
    assert "plain-1" in output
    assert "secret-1" not in output
