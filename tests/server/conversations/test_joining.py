"""A client joins while its request waits for the disk: what ends or begins meanwhile is there once, in the answer or
behind it.
"""

from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import anyio
import pytest

from app_server.engine.client_context import TurnCaller
from app_server.engine.session.session_commands import StartTurn
from app_server.engine.storage.stored_conversations import StoredConversations
from app_server_protocol.encoding import Json
from app_server_protocol.event_items import TextInput
from tests.support.scripted_model import Hold, Reply, begins_to_say, calls, reply, says, word
from tests.support.thread_client import ended, heard, join, say, start, turn
from tests.support.waiting import until
from tests.support.world import MakeWorld, World

pytestmark = pytest.mark.scenario


INITIALIZE: Json = {
    "protocolVersion": 1,
    "clientCapabilities": {},
    "clientInfo": {"name": "tests", "version": "1.0"},
}


class SlowReads:
    """Reads of stored conversations, whose results arrive when the test lets them."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.done = 0
        """Number of reads whose results are there."""
        self.go = anyio.Event()
        for name in ("turns", "read_open", "summary"):
            patch.setattr(StoredConversations, name, self._slow(getattr(StoredConversations, name)))

    def _slow(self, read: Callable[..., Any]) -> Callable[..., Any]:
        async def slow(*args: Any, **more: Any) -> Any:
            result = await read(*args, **more)
            self.done += 1
            await self.go.wait()
            return result

        return slow


class Meanwhile:
    """A thread in which, while somebody joins, a turn ends, one comes and goes, and one begins. These begin as turns
    for a goal do: requests about the thread wait until the one who joins was answered.
    """

    def __init__(self, w: World, thread: str, holds: list[Hold]) -> None:
        assert w.in_process is not None
        self.client, self.thread, self.holds = w.client, thread, holds
        self.live = w.in_process.conversations.get(thread)

    async def _turn(self, text: str) -> str:
        given = await self.live.session.prepare_input([TextInput(text=text)])
        return self.live.session.turns.start(
            StartTurn(turn_input=given), TurnCaller(self.live.opened_by.caller)
        ).turn

    async def go_on(self) -> None:
        self.holds[0].release()
        await self.client.expect("turn/completed")
        await ended(self.client, await self._turn("short"))
        await self._turn("again")
        await self.client.expect(lambda m: m.get("params", {}).get("delta") == "three ")

    async def end(self) -> None:
        self.holds[1].release()
        await self.client.expect("turn/completed")


SAID = ["zero", "go", "short", "again"]


def replies(holds: list[Hold]) -> list[Reply]:
    return [
        reply(says("first")),
        reply(begins_to_say(), word("one "), holds[0], word("two"), says("one two")),
        reply(says("between")),
        reply(begins_to_say(), word("three "), holds[1], word("four"), says("three four")),
    ]


async def begun(w: World, holds: list[Hold]) -> Meanwhile:
    thread = await start(w.client)
    await say(w.client, thread, "zero")
    await turn(w.client, thread, "go")
    await w.client.expect(lambda m: m.get("params", {}).get("delta") == "one ")
    return Meanwhile(w, thread, holds)


def texts(turns: list[Json]) -> list[str]:
    return [each["text"] for one in turns for each in one["items"] if each["type"] == "agentMessage"]


@pytest.mark.parametrize(
    "rest", [{}, {"excludeTurns": True, "initialTurnsPage": {"limit": 9, "itemsView": "full"}}]
)
async def test_turns_that_end_and_begin_while_a_thread_is_read_are_there_once(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch, rest: Json
) -> None:
    holds = [Hold(), Hold()]
    async with world(*replies(holds)) as w, AsyncExitStack() as stack:
        meanwhile = await begun(w, holds)
        options: Json = {"capabilities": {"experimentalApi": True}}
        joining = [await stack.enter_async_context(w.another(**options)) for _ in range(3)]
        reads = SlowReads(monkeypatch)
        asked = [await each.send("thread/resume", {"threadId": meanwhile.thread, **rest}) for each in joining]
        await until(lambda: reads.done > 0)
        await meanwhile.go_on()
        reads.go.set()
        answers = [(await each.answer_to(id))["result"] for each, id in zip(joining, asked, strict=True)]
        await meanwhile.end()
        for client, id, answer in zip(joining, asked, answers, strict=True):
            await client.expect("turn/completed")
            turns = answer["thread"]["turns"] or answer["initialTurnsPage"]["data"][::-1]
            assert [each["status"] for each in turns] == ["completed"] * 3 + ["inProgress"]
            assert [each["items"][0]["content"][0]["text"] for each in turns] == SAID
            so_far = [] if rest else ["three "]
            assert texts(turns) == ["first", "one two", "between", *so_far]
            assert answer["thread"]["status"]["type"] == "active"
            assert [each["turn"]["id"] for each in heard(client, "turn/started")] == [turns[-1]["id"]]
            [item] = [each["item"] for each in heard(client, "item/started")]
            assert item["text"] == "three "
            assert [each["delta"] for each in heard(client, "item/agentMessage/delta")] == ["four"]
            assert texts([{"items": [each["item"]]} for each in heard(client, "item/completed")]) == [
                "three four"
            ]
            seen = [each.get("method", each.get("id")) for each in client.received()]
            assert seen.index(id) < seen.index("turn/started")


async def test_the_cursors_of_a_thread_that_goes_on_meanwhile_are_those_of_its_last_items(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    holds = [Hold(), Hold()]
    async with world(*replies(holds)) as w, w.another(capabilities={"experimentalApi": True}) as other:
        meanwhile = await begun(w, holds)
        reads = SlowReads(monkeypatch)
        asked = await other.send("thread/resume", {"threadId": meanwhile.thread, "excludeTurns": True})
        await until(lambda: reads.done > 0)
        await meanwhile.go_on()
        reads.go.set()
        answer = (await other.answer_to(asked))["result"]
        back: Json = {"threadId": meanwhile.thread, "sortDirection": "desc"}
        turns = await other.call("thread/turns/list", {**back, "cursor": answer["turnsBackwardsCursor"]})
        assert [each["status"] for each in turns["data"]] == ["inProgress"] + ["completed"] * 3
        items = await other.call("thread/items/list", {**back, "cursor": answer["itemsBackwardsCursor"]})
        said = [
            each["item"]["content"][0]["text"]
            for each in items["data"]
            if each["item"]["type"] == "userMessage"
        ]
        assert said == SAID[::-1]
        await meanwhile.end()


async def test_an_editor_is_shown_what_ends_while_a_session_is_read(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    holds = [Hold(), Hold()]
    async with world(*replies(holds)) as w, w.another(acp=True) as editor:
        await editor.call("initialize", INITIALIZE)
        meanwhile = await begun(w, holds)
        reads = SlowReads(monkeypatch)
        opening: Json = {"sessionId": meanwhile.thread, "cwd": str(w.workspace), "mcpServers": []}
        asked = await editor.send("session/load", opening)
        await until(lambda: reads.done > 0)
        reads.go.set()
        await until(lambda: reads.done > 1)
        await meanwhile.go_on()
        await editor.answer_to(asked)
        await meanwhile.end()

        def chunks(kind: str) -> list[str]:
            updates = (each["update"] for each in heard(editor, "session/update"))
            return [each["content"]["text"] for each in updates if each["sessionUpdate"] == kind]

        await until(lambda: "".join(chunks("agent_message_chunk")).endswith("four"))
        assert chunks("user_message_chunk") == SAID
        assert "".join(chunks("agent_message_chunk")) == "firstone twobetweenthree four"


async def test_a_client_of_the_old_api_has_each_message_in_the_answer_or_from_its_listener(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    holds = [Hold(), Hold()]
    async with world(*replies(holds)) as w, w.another() as old:
        meanwhile = await begun(w, holds)
        reads = SlowReads(monkeypatch)
        asked = await old.send("resumeConversation", {"conversationId": meanwhile.thread})
        await until(lambda: reads.done > 0)
        await meanwhile.go_on()
        reads.go.set()
        resumed = (await old.answer_to(asked))["result"]["initialMessages"]
        assert [each["message"] for each in resumed if each["type"] == "user_message"] == SAID
        answers = [each["message"] for each in resumed if each["type"] == "agent_message"]
        assert answers == ["first", "one two", "between"]
        await meanwhile.end()  # nobody listens yet
        assert [
            each for each in old.received() if str(each.get("method")).startswith("codex/event/agent")
        ] == []
        await old.listen(meanwhile.thread)
        await old.expect("task_complete")
        assert len(old.events("task_started")) == 1
        assert "".join(each["delta"] for each in old.events("agent_message_delta")) == "three four"
        assert [each["message"] for each in old.events("agent_message")] == ["three four"]
        assert old.events("user_message") == []


async def test_who_leaves_while_it_joins_leaves_nothing_behind(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    holds = [Hold(), Hold()]
    async with world(*replies(holds)) as w, w.another() as other, w.another() as stays:
        meanwhile = await begun(w, holds)
        reads = SlowReads(monkeypatch)
        await other.send("thread/resume", {"threadId": meanwhile.thread})
        asked = await stays.send("thread/resume", {"threadId": meanwhile.thread})
        await until(lambda: reads.done > 0)
        await other.leave()
        await meanwhile.go_on()
        reads.go.set()
        await stays.answer_to(asked)
        assert len(meanwhile.live.subscriptions.present) == 2
        await meanwhile.end()
        assert texts([{"items": [each["item"]]} for each in heard(stays, "item/completed")]) == ["three four"]


async def test_events_that_wait_for_slow_clients_are_sent_before_who_joins_is_answered(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk has them already, so that they would come twice."""
    read_on = anyio.Event()
    async with world(reply(says("first")), reply(says("second"))) as w, w.another() as other:
        thread = await start(w.client)
        await say(w.client, thread)
        assert w.in_process is not None
        live = w.in_process.conversations.get(thread)
        monkeypatch.setattr(live.subscriptions, "wait_for_capacity", read_on.wait)
        await turn(w.client, thread, "go")
        await until(lambda: not live.session.running and len(live.session.events) > 0)
        answer = await join(other, thread)
        assert texts(answer["thread"]["turns"]) == ["first", "second"]
        assert [each["status"] for each in answer["thread"]["turns"]] == ["completed"] * 2
        await w.client.expect("turn/completed")
        await other.call("thread/loaded/list", {})
        assert (
            heard(other, "turn/started")
            == heard(other, "item/completed")
            == heard(other, "turn/completed")
            == []
        )
        assert len(heard(w.client, "turn/completed")) == 2
        read_on.set()


async def test_a_command_that_ends_after_its_turn_while_the_thread_is_read_is_in_the_answer(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = {"cmd": "cat gate; echo over", "shell": "/bin/sh", "login": False, "yield_time_ms": 250}
    opens, tables = calls("exec_command", runs), "[features]\nunified_exec = true"
    async with world(reply(opens), reply(says("on")), tables=tables) as w, w.another() as other:
        w.fifo("gate")
        thread = await start(w.client)
        await say(w.client, thread)
        reads = SlowReads(monkeypatch)
        asked = await other.send("thread/resume", {"threadId": thread})
        await until(lambda: reads.done > 0)
        await w.open_gate("gate")
        await w.client.expect(lambda m: m.get("method") == "item/completed" and "over" in str(m))
        reads.go.set()
        [only] = (await other.answer_to(asked))["result"]["thread"]["turns"]
        [command] = [each for each in only["items"] if each["type"] == "commandExecution"]
        assert command["status"] == "completed"
        assert command["aggregatedOutput"].endswith("over\r\n")
        assert heard(other, "item/completed") == []
