"""Limits of a server with several clients: their maximum number, and the cost of a client that does not read."""

from __future__ import annotations

import re
from dataclasses import dataclass

import anyio
import pytest

from app_server_protocol.encoding import Json
from tests.support.client import Client
from tests.support.scripted_model import Hold, Reply, begins_to_say, reply, says, script, word
from tests.support.thread_client import ended, heard, join, say, start, turn
from tests.support.waiting import until
from tests.support.world import MakeWorld, World

pytestmark = pytest.mark.scenario


async def test_a_client_that_does_not_read_its_answers_holds_up_nobody_elses_requests(
    world: MakeWorld,
) -> None:
    """A client does not read the answer to its request; another client sends a request about the same thread."""
    hold = Hold()
    async with (
        world(reply(begins_to_say(), word("one"), hold, says("one"))) as w,
        w.another(buffered=1) as slow,
    ):
        thread = await start(w.client)
        begun = await turn(w.client, thread)
        await w.client.expect("item/agentMessage/delta")
        slow.stop_reading()
        joins = [await slow.send("thread/resume", {"threadId": thread}) for _ in range(3)]
        await anyio.wait_all_tasks_blocked()
        await w.client.call("turn/interrupt", {"threadId": thread, "turnId": begun})
        assert (await ended(w.client, begun))["status"] == "interrupted"
        slow.read_on()
        for id in joins:
            assert "result" in await slow.answer_to(id)


WORDS = [f"word {n} of many, " for n in range(3_000)]
SMALL = {"APP_SERVER_MAX_UNREAD_BYTES": "8192"}


def long_message(*holds: Hold) -> Reply:
    """Return a message of two halves with the holds before, between and after them, and a last word."""
    half = len(WORDS) // 2
    first, second = map(word, WORDS[:half]), map(word, WORDS[half:])
    before, between, behind = holds
    said = (begins_to_say(), word(""), before, *first, between, *second, behind, word("end"))
    return reply(*said, says("".join(WORDS) + "end"))


@dataclass
class Slow:
    """Client of one API that stops reading."""

    world: World
    client: Client
    thread: str

    def stop(self) -> None:
        self.client.stop_reading()

    def read_on(self) -> None:
        self.client.read_on()

    @property
    def unread(self) -> int:
        """Number of unread bytes that the server holds for all clients but the first."""
        assert self.world.in_process is not None
        return sum(each.outgoing.unread for each in self.world.in_process.conversations.clients)

    async def join(self) -> None:
        await join(self.client, self.thread)

    async def ended(self) -> None:
        await self.client.expect("turn/completed")

    def said(self) -> list[str]:
        """Return the deltas of messages that it received."""
        return [each["delta"] for each in heard(self.client, "item/agentMessage/delta")]


class SlowOld(Slow):
    async def join(self) -> None:
        await self.client.call("resumeConversation", {"conversationId": self.thread})
        await self.client.listen(self.thread)

    async def ended(self) -> None:
        await self.client.expect("task_complete")

    def said(self) -> list[str]:
        by_item = [each["delta"] for each in self.client.events("agent_message_content_delta")]
        plain = [each["delta"] for each in self.client.events("agent_message_delta")]
        assert plain == by_item[: len(plain)]  # the second of a pair may be on its way
        return plain


class SlowEditor(Slow):
    async def join(self) -> None:
        await self.client.call("initialize", {"protocolVersion": 1, "clientCapabilities": {}})
        opening: Json = {"sessionId": self.thread, "cwd": str(self.world.workspace), "mcpServers": []}
        await self.client.call("session/load", opening)

    async def ended(self) -> None:
        await until(lambda: self.said()[-1:] == ["end"])

    def said(self) -> list[str]:
        updates = [each["update"] for each in heard(self.client, "session/update")]
        chunks = [each for each in updates if each["sessionUpdate"] == "agent_message_chunk"]
        return [each["content"]["text"] for each in chunks]


@pytest.mark.parametrize("api", [Slow, SlowOld, SlowEditor])
async def test_one_that_does_not_read_gets_what_it_missed_in_one_piece_and_holds_up_nobody(
    world: MakeWorld, api: type[Slow]
) -> None:
    holds = [Hold() for _ in range(3)]
    async with (
        world(reply(says("before")), long_message(*holds), environment=SMALL) as w,
        w.another(buffered=1, acp=api is SlowEditor) as client,
    ):
        thread = await start(w.client)
        await say(w.client, thread)
        slow = api(w, client, thread)
        begun = await turn(w.client, thread)
        await holds[0].reached.wait()
        await slow.join()
        slow.stop()
        holds[0].release()
        half = "".join(WORDS[: len(WORDS) // 2])
        await until(lambda: text_heard(w.client) == half)  # a client that reads gets everything
        holds[1].release()
        await until(lambda: text_heard(w.client) == "".join(WORDS))
        assert slow.unread < 64 * 1024  # the deltas alone have ten times as much
        slow.read_on()
        await until(lambda: "".join(slow.said()).endswith("".join(WORDS)))
        pieces = len(slow.said())
        holds[2].release()
        await ended(w.client, begun)
        await slow.ended()
        assert "".join(slow.said()).removeprefix("before") == "".join(WORDS) + "end"
        assert pieces < len(WORDS) // 4
        assert max(map(len, slow.said())) > len("".join(WORDS)) // 2


def text_heard(client: Client) -> str:
    return "".join(each["delta"] for each in heard(client, "item/agentMessage/delta"))


PRINTS_MUCH = "head -c 3000000 /dev/zero | tr '\\0' x"


async def test_of_much_output_that_it_missed_the_beginning_is_told_and_what_is_left_out(
    world: MakeWorld,
) -> None:
    hold = Hold()
    replies = (reply(script("read line < gate; " + PRINTS_MUCH)), reply(hold, says("done")))
    async with world(*replies, environment=SMALL) as w, w.another(buffered=1) as client:
        w.fifo("gate")
        thread = await start(w.client)
        slow = Slow(w, client, thread)
        await slow.join()
        await turn(w.client, thread)
        await client.expect(lambda m: m.get("method") == "item/started")
        slow.stop()
        await w.open_gate("gate")
        await hold.reached.wait()
        assert slow.unread < 4 << 20  # the end of the item has its output, up to the cap
        slow.read_on()
        hold.release()
        await slow.ended()
        pieces = [each["delta"] for each in heard(client, "item/commandExecution/outputDelta")]
        assert max(map(len, pieces)) <= 8 * 1024
        said = re.findall(r"\n\[\.\.\. (\d+) characters omitted \.\.\.\]\n", "".join(pieces))
        left_out = sum(map(int, said))
        assert "".join(pieces).count("x") + left_out == 3_000_000
        assert left_out > 1_000_000


async def test_of_statuses_and_usage_one_that_did_not_read_is_told_the_last(world: MakeWorld) -> None:
    replies = [reply(says(f"{n} " * 3_000), input=100 + n) for n in range(6)]
    async with world(*replies, environment=SMALL) as w, w.another(buffered=1) as client:
        thread = await start(w.client)
        slow = Slow(w, client, thread)
        await slow.join()
        await say(w.client, thread)
        await slow.ended()
        slow.stop()
        for _ in range(5):
            await say(w.client, thread)
        slow.read_on()
        for _ in range(5):
            await slow.ended()
        await client.call("thread/loaded/list", {})
        statuses = [each["status"]["type"] for each in heard(client, "thread/status/changed")]
        usage = [
            each["tokenUsage"]["last"]["inputTokens"] for each in heard(client, "thread/tokenUsage/updated")
        ]
        assert statuses[-1] == "idle"
        assert usage[-1] == 105
        assert len(usage) < 6 > statuses.count("idle")
        assert statuses.count("active") == 6, "a thread is active before each turn that starts"
        everything = heard(w.client, "thread/status/changed")
        assert len(everything) == 12


async def test_one_for_whom_too_much_waits_is_disconnected_and_can_go_on_later(world: MakeWorld) -> None:
    prints = [reply(script(f"head -c 20000 /dev/zero | tr '\\0' {c}")) for c in "abcdefgh"]
    small = {**SMALL, "APP_SERVER_MAX_BEHIND_BYTES": "65536"}
    async with world(*prints, reply(says("done")), environment=small) as w:
        async with w.another(buffered=1) as client:
            thread = await start(w.client)
            slow = Slow(w, client, thread)
            await slow.join()
            slow.stop()
            begun = await turn(w.client, thread)
            assert (await ended(w.client, begun))["status"] == "completed"
            assert slow.unread < 64 * 1024  # the waiting messages are dropped
            slow.read_on()
            await until(lambda: client.closed)
            last = client.received()[-1]
            assert last["method"] == "warning"
            assert last["params"]["threadId"] is None
            assert last["params"]["message"] == "disconnected: 0 MB unread; resume to go on"
            client.left_early = True
        async with w.another() as again:
            resumed = await again.call("thread/resume", {"threadId": thread})
            assert resumed["thread"]["turns"][-1]["items"][-1]["text"] == "done"
