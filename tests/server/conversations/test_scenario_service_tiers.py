"""Service tiers over the thread API: the client's choice, the request to the provider, and the answers."""

from typing import Final

import pytest

from app_server_protocol.encoding import Json
from tests.support.scripted_model import reply, says
from tests.support.thread_client import ended, notified, turn
from tests.support.world import EXPERIMENTAL, MakeWorld, World

pytestmark = pytest.mark.scenario

HAS_PRIORITY: Final = {"model": "gpt-6.2-sol"}


def sent(w: World) -> list[Json]:
    """Return the service tiers of the requests so far, None for those without one."""
    return [each.body.get("service_tier") for each in w.model.requests]


def warned(w: World) -> list[str]:
    texts = [each["message"] for each in notified(w, "warning")]
    return [text for text in texts if "service tier" in text]


@pytest.mark.parametrize(
    ("given", "shown", "on_the_wire"),
    [
        ({}, None, None),
        ({"serviceTier": "priority"}, "priority", "priority"),
        ({"serviceTier": "fast"}, "priority", "priority"),
        ({"serviceTier": "default"}, "default", None),
        ({"serviceTier": None}, "default", None),
        ({"config": {"service_tier": "fast"}}, "priority", "priority"),
    ],
)
async def test_a_thread_begins_with_the_tier_that_its_client_chose(
    world: MakeWorld, given: Json, shown: str | None, on_the_wire: str | None
) -> None:
    async with world(reply(says("ok")), config=HAS_PRIORITY) as w:
        opened = await w.client.call("thread/start", given)
        assert opened["serviceTier"] == shown
        await ended(w.client, await turn(w.client, opened["thread"]["id"]))
        assert sent(w) == [on_the_wire]
        assert warned(w) == []


async def test_a_tier_that_the_model_lacks_is_told_and_not_sent(world: MakeWorld) -> None:
    async with world(reply(says("ok")), reply(says("ok")), config=HAS_PRIORITY) as w:
        opened = await w.client.call("thread/start", {"serviceTier": "turbo"})
        assert opened["serviceTier"] is None
        thread = opened["thread"]["id"]
        await ended(w.client, await turn(w.client, thread))
        assert warned(w) == ["The model `gpt-6.2-sol` has no service tier `turbo`; it is not sent."]
        await ended(w.client, await turn(w.client, thread, serviceTier="sloth"))
        assert warned(w)[1:] == ["The model `gpt-6.2-sol` has no service tier `sloth`; it is not sent."]
        assert sent(w) == [None, None]


async def test_a_tier_holds_until_another_is_chosen_or_a_model_lacks_it(world: MakeWorld) -> None:
    replies = [reply(says("ok")) for _ in range(5)]
    async with world(*replies, config=HAS_PRIORITY, capabilities=EXPERIMENTAL) as w:
        thread = (await w.client.call("thread/start", {}))["thread"]["id"]
        for given in ({"serviceTier": "fast"}, {}, {"serviceTier": None}):
            await ended(w.client, await turn(w.client, thread, **given))
        await w.client.call("thread/settings/update", {"threadId": thread, "serviceTier": "priority"})
        await ended(w.client, await turn(w.client, thread))
        await ended(w.client, await turn(w.client, thread, model="gpt-daybreak-red-latest"))
        assert sent(w) == ["priority", "priority", None, "priority", None]
        settings = [each["threadSettings"]["serviceTier"] for each in notified(w, "thread/settings/updated")]
        assert settings == ["priority", "default", "priority", None]
        assert warned(w) == [
            "The model `gpt-daybreak-red-latest` has no service tier `priority`; it is not sent."
        ]


async def test_a_stored_thread_goes_on_with_its_tier(world: MakeWorld) -> None:
    async with world(reply(says("ok")), config=HAS_PRIORITY) as w:
        opened = await w.client.call("thread/start", {"serviceTier": "fast"})
        thread = opened["thread"]["id"]
        await ended(w.client, await turn(w.client, thread))
        joined = await w.client.call("thread/resume", {"threadId": thread})
        copied = await w.client.call("thread/fork", {"threadId": thread, "excludeTurns": True})
        usual = await w.client.call("thread/fork", {"threadId": thread, "serviceTier": None})
    async with world(config=HAS_PRIORITY) as w:
        resumed = await w.client.call("thread/resume", {"threadId": thread})
    tiers = [each["serviceTier"] for each in (joined, copied, usual, resumed)]
    assert tiers == ["priority", "priority", "default", "priority"]
