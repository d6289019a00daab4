"""A server is killed while a message streams. A second server shows all of the streamed text, except for a little at
its end.

By default it is killed three times; `make faults` (FAULTS=long) kills two hundred times, at positions of the text that
are drawn from a seed. A failure names the seed: `FAULTS_SEED=… make faults ARGS="-k killed_streams"`.
"""

import os
import random
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from app_server.engine.storage.encode import MOST_UNKEPT
from app_server.engine.storage.rollout_names import journal_path
from app_server_protocol.encoding import Json
from tests.support.client import Client
from tests.support.places import LONG, Served, place_in
from tests.support.scripted_model import Hold, Reply, begins_to_say, reply, says, word
from tests.support.thread_client import say, start, turn
from tests.support.waiting import until

pytestmark = [pytest.mark.process, pytest.mark.faults, pytest.mark.slow]

KILLS = 200 if LONG else 3
SEED = os.environ.get("FAULTS_SEED") or str(random.randrange(1 << 32))
LONGEST_PAUSE = 0.02
"""Longest pause between the text at which a server is killed and the kill, in seconds."""
WORDS = [f"wörd-{n} " for n in range(4000)]
TEXT = "".join(WORDS)
WORDS_AT_ONCE = 5


class Breath(Hold):
    """Hold that lets the model send its text so far, and other tasks run."""

    async def wait(self) -> None:
        await anyio.lowlevel.checkpoint()


def endless(*words: str) -> tuple[Reply, Hold]:
    """Return a reply that begins with these words and does not end before the hold is released, and the hold."""
    hold = Hold()
    said: list[Json | Hold] = [begins_to_say()]
    for n, each in enumerate(words):
        said += [word(each)] if n % WORDS_AT_ONCE else [Breath(), word(each)]
    return reply(*said, hold), hold


def text_sent(client: Client, begun: int = 0) -> str:
    log = (entry.message for entry in client.log[begun:])
    return "".join(m["params"]["delta"] for m in log if m.get("method") == "item/agentMessage/delta")


async def all_was_read(server: Served) -> None:
    await server.kill()
    await until(lambda: server.client.closed, "what the server had written is read")


async def stream(server: Served, moment: tuple[int, float]) -> str:
    """Let a message stream in a new thread until the moment: a number of characters and a pause after them."""
    characters, pause = moment
    answer, hold = endless(*WORDS)
    server.place.model.replies[:] = [answer]
    thread = await start(server.client)
    await turn(server.client, thread)
    heard = 0
    while heard < characters:
        heard += len((await server.client.expect("item/agentMessage/delta"))["params"]["delta"])
    await anyio.sleep(pause)
    await all_was_read(server)
    hold.release()
    return thread


async def text_kept(server: Served, thread: str) -> str:
    """Return the text that a second server shows, and check that the model is sent it when the thread goes on."""
    model = server.place.model
    before = len(model.requests)
    model.replies[:] = [reply(says("Done."))]
    read = await server.client.call("thread/read", {"threadId": thread, "includeTurns": True})
    (shown,) = read["thread"]["turns"]
    resumed = await server.client.call("thread/resume", {"threadId": thread})
    assert resumed["thread"]["turns"] == [shown], "a look at it has shown the same"
    await say(server.client, thread, "go on")
    assert shown["status"] == "interrupted"
    kept = [item["text"] for item in shown["items"] if item["type"] == "agentMessage"]
    assert model.requests[before].texts("assistant") == kept
    return "".join(kept)


async def test_what_was_sent_of_a_message_survives_sigkill_but_for_4_kib(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    thread, sent = "", ""
    async with place_in(tmp_path) as place:
        for kill in range(KILLS + 1):
            async with place.server() as server:
                if thread:
                    kept = await text_kept(server, thread)
                    where = f"seed {SEED}, kill {kill}: {len(sent)} characters were sent, {len(kept)} kept"
                    assert TEXT.startswith(sent), where
                    assert TEXT.startswith(kept), where
                    assert len(sent[len(kept) :].encode()) < MOST_UNKEPT, where
                if kill < KILLS:
                    begun = len(server.client.log)
                    moment = chance.randrange(1, len(TEXT)), chance.uniform(0, LONGEST_PAUSE)
                    thread = await stream(server, moment)
                    sent = text_sent(server.client, begun)


async def test_little_text_survives_sigkill_as_soon_as_the_journal_has_it(tmp_path: Path) -> None:
    """The text is written to the journal without a further event."""
    answer, hold = endless("Let me ", "think")
    async with place_in(tmp_path) as place:
        place.model.replies[:] = [answer]
        async with place.server() as server:
            thread = await start(server.client)
            await turn(server.client, thread)
            (path,) = place.rollouts()
            journal = journal_path(path)
            await until(lambda: journal.exists() and b"think" in journal.read_bytes(), "it is kept")
            await all_was_read(server)
        hold.release()
        assert text_sent(server.client) == "Let me think"
        async with place.server() as second:
            assert await text_kept(second, thread) == "Let me think"
