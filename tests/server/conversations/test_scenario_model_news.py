"""Notifications about the model of a thread: another model answers, the model is unknown, its window is smaller than
the user says, it belonged to another provider, or no user is logged in.
"""

from __future__ import annotations

import pytest

from app_server_protocol.encoding import Json
from tests.support.scripted_model import failure, reply, says
from tests.support.thread_client import ended, notified, turn
from tests.support.world import MakeWorld, World

pytestmark = pytest.mark.scenario


def warnings(w: World) -> list[str]:
    return [each["message"] for each in notified(w, "warning")]


def use_openai(w: World) -> None:
    """Point the built-in provider to the scripted model."""
    path = w.home / "config.toml"
    text = path.read_text()
    url = text.partition('base_url = "')[2].partition('"')[0]
    text = text.replace('model_provider = "scripted"\n', 'model_provider = "openai"\n')
    path.write_text(f'openai_base_url = "{url}"\n{text}')


async def test_a_model_that_answers_in_place_of_another_is_told_once_a_turn(world: MakeWorld) -> None:
    other = [("openai-model", "gpt-6-luna")]
    calls = {"type": "function_call", "name": "no_such_tool", "arguments": "{}", "call_id": "c1"}
    replies = [
        reply({"type": "response.output_item.done", "item": calls}, headers=other),
        reply(says("a"), headers=other),
        reply(says("b"), headers=[("openai-model", "gpt-6.2-sol")]),
    ]
    config, key = {"model": "gpt-6.2-sol"}, {"OPENAI_API_KEY": "sk-mine"}
    async with world(*replies, config=config, before=use_openai, environment=key) as w:
        thread = (await w.client.call("thread/start", {}))["thread"]["id"]
        id = await turn(w.client, thread)
        await ended(w.client, id)
        await ended(w.client, await turn(w.client, thread))
        expected: Json = {"fromModel": "gpt-6.2-sol", "toModel": "gpt-6-luna"}
        expected |= {"threadId": thread, "turnId": id, "reason": "highRiskCyberActivity"}
        assert notified(w, "model/rerouted") == [expected]
        text = "The provider answered with `gpt-6-luna` in place of `gpt-6.2-sol`."
        assert [each for each in warnings(w) if "in place of" in each] == [text]


async def test_a_model_of_which_nothing_is_known_is_told_once(world: MakeWorld) -> None:
    replies = [reply(says("a")) for _ in range(3)]
    async with world(*replies, config={"model": "some-model"}) as w:
        thread = (await w.client.call("thread/start", {}))["thread"]["id"]
        for model in ("some-model", "some-model", "gpt-6.2-sol"):
            await ended(w.client, await turn(w.client, thread, model=model))
        told = [each for each in warnings(w) if "Nothing is known" in each]
    assert told == [
        "Nothing is known of the model `some-model`; a window of 272,000 tokens is assumed. Say more in "
        '[models."some-model"].'
    ]


async def test_a_model_of_which_the_user_says_something_is_known(world: MakeWorld) -> None:
    tables = '[models."some-*"]\ncontext_window = 100000\n'
    async with world(reply(says("a")), config={"model": "some-model"}, tables=tables) as w:
        await ended(w.client, await turn(w.client, (await w.client.call("thread/start", {}))["thread"]["id"]))
        assert not [each for each in warnings(w) if "Nothing is known" in each]


async def test_a_window_beyond_that_of_the_model_is_cut_with_a_warning(world: MakeWorld) -> None:
    config = {"model": "gpt-5.5", "model_context_window": 900_000}
    async with world(config=config) as w:
        await w.client.call("thread/start", {})
        await w.client.expect("warning")
        assert [each for each in warnings(w) if "model_context_window" in each] == [
            "`model_context_window` is 900,000; the model `gpt-5.5` takes 272,000 tokens at most, which is its "
            "window here."
        ]


async def test_a_thread_of_another_provider_takes_the_configured_model_and_says_so(world: MakeWorld) -> None:
    config = {"model": "their-model"}
    async with world(reply(says("a")), config=config) as w:
        thread = (await w.client.call("thread/start", {"model": "old-model"}))["thread"]["id"]
        await ended(w.client, await turn(w.client, thread))
    text = "[model_providers.elsewhere]\nname = 'e'\nbase_url = 'http://127.0.0.1:9/v1'\n"
    async with world(config=config, tables=text) as w:
        same = await w.client.call("thread/fork", {"threadId": thread, "excludeTurns": True})
        assert same["model"] == "old-model"
        there = await w.client.call("thread/resume", {"threadId": thread, "modelProvider": "elsewhere"})
        assert (there["model"], there["modelProvider"]) == ("their-model", "elsewhere")
        await w.client.expect("warning")
        sentence = (
            "This thread used `old-model` of another provider; it goes on with `their-model` of `elsewhere`."
        )
        assert [each for each in warnings(w) if "another provider" in each] == [sentence]


async def test_a_model_that_is_gone_is_an_error_that_names_the_list(world: MakeWorld) -> None:
    gone = {"error": {"message": "The model `some-model` does not exist", "code": "model_not_found"}}
    async with world(failure(404, gone), config={"model": "some-model"}) as w:
        w.model.offered = ("gpt-6.2-sol", "gpt-6-sol")
        thread = (await w.client.call("thread/start", {}))["thread"]["id"]
        failed = await ended(w.client, await turn(w.client, thread))
        assert failed["error"]["codexErrorInfo"] == "modelNotFound"
        assert failed["error"]["message"].endswith(
            "does not offer the model `some-model`. It offers gpt-6.2-sol, gpt-6-sol (model/list). Set `model`."
        )
        assert len(w.model.requests) == 1


async def test_who_is_not_logged_in_is_told_of_another_key(world: MakeWorld) -> None:
    def only_openai(w: World) -> None:
        (w.home / "config.toml").write_text('model_provider = "openai"\n')

    key = {"ANTHROPIC_API_KEY": "sk-ant"}
    async with world(before=only_openai, environment=key) as w:
        thread = (await w.client.call("thread/start", {}))["thread"]["id"]
        failed = await ended(w.client, await turn(w.client, thread))
    text = failed["error"]["message"]
    assert "Nobody is logged in; set OPENAI_API_KEY" in text
    assert 'ANTHROPIC_API_KEY is set: for Claude, set `model_provider = "anthropic"`.' in text
    assert "sk-ant" not in text
