"""A thread that is being unloaded while its client comes back to it."""

import anyio
import pytest

from app_server.conversations import unloading
from app_server.conversations.live import LiveConversation
from tests.support.scripted_model import reply, says
from tests.support.thread_client import notified, say, start
from tests.support.world import MakeWorld


async def test_who_resumes_a_thread_that_is_being_unloaded_gets_it_loaded_anew(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends, may_end = anyio.Event(), anyio.Event()
    shut_down = LiveConversation.shut_down

    async def slow(live: LiveConversation) -> None:
        live.ending = True
        ends.set()
        await may_end.wait()
        await shut_down(live)

    async with world(reply(says("one")), reply(says("two"))) as w:
        thread, other = await start(w.client), await start(w.client)
        await say(w.client, thread, "first")
        await w.client.call("thread/unsubscribe", {"threadId": thread})
        await w.client.call(
            "thread/name/set", {"threadId": thread, "name": "x"}
        )  # begins once that request is over
        monkeypatch.setattr(unloading, "MOST_IDLE", 0)
        monkeypatch.setattr(LiveConversation, "shut_down", slow)
        await w.client.call("thread/unsubscribe", {"threadId": other})
        await ends.wait()
        request = await w.client.send("thread/resume", {"threadId": thread})
        await w.client.call("thread/loaded/list", {})  # so the request before it has begun, too
        may_end.set()
        resumed = (await w.client.answer_to(request))["result"]
        assert [each["items"][0]["content"][0]["text"] for each in resumed["thread"]["turns"]] == ["first"]
        assert {"threadId": thread} in notified(w, "thread/closed")
        await say(w.client, thread, "second")
    assert w.model.requests[-1].texts() == ["first", "second"]


async def test_a_thread_is_not_unloaded_before_its_client_is_subscribed(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unloading, "MOST_IDLE", 1)
    monkeypatch.setattr(unloading, "NO_ROOM", 2)
    async with world(*(reply(says("hello")) for _ in range(12))) as w:
        params = {"cwd": str(w.workspace)}
        requests = [await w.client.send("thread/start", params) for _ in range(12)]
        opened = [(await w.client.answer_to(request))["result"]["thread"]["id"] for request in requests]
        for thread in opened:
            await say(w.client, thread, "hi")
        assert notified(w, "thread/closed") == []
