"""A client that sleeps: what floods it waits, memory stays where it is, and once it wakes nothing is missing."""

from pathlib import Path

import anyio
import pytest

from tests.faults.rig import Place, Served, conversing, in_one_piece, served
from tests.support.client import Refused
from tests.support.scripted_model import ScriptedModel, begins_to_say, reply, says, script, word
from tests.support.world import SCRIPT

WORDS = [f"word-{n:05} {'x' * 200} " for n in range(60_000)]
MIB = 1 << 20
ROOM = 80 * MIB
"""For queues that are full and for what the allocator keeps; the stream is far larger as events."""


async def settled(server: Served) -> int:
    """Its memory, once that no longer changes."""
    before, now = -1, server.memory()
    with anyio.fail_after(60):
        while now != before:
            await anyio.sleep(0.5)
            before, now = now, server.memory()
    return now


def told(server: Served, conversation: str, kind: str) -> str:
    return "".join(event["delta"] for event in server.client.events(kind, conversation))


async def test_a_stream_waits_for_a_sleeping_client_and_arrives_whole(tmp_path: Path) -> None:
    text = "".join(WORDS)
    flood = in_one_piece(reply(begins_to_say(), *map(word, WORDS), says(text)))
    model = ScriptedModel([reply(says("before")), flood, reply(says("after"))])
    async with conversing(Place(tmp_path), model) as server:
        conversation = await server.open()
        # What a first turn loads is no part of the flood.
        assert (await server.client.turn(conversation, "first")).last_message == "before"
        before = server.memory()
        server.wire.sleep()
        await server.client.send(
            "sendUserMessage",
            {"conversationId": conversation, "items": [{"type": "text", "data": {"text": "go"}}]},
        )
        asleep = await settled(server)
        server.wire.wake()
        turn = await server.client.rest_of_turn(conversation)
        assert turn.last_message == text
        assert told(server, conversation, "agent_message_delta") == text
        assert told(server, conversation, "agent_message_content_delta") == text
        assert asleep - before < ROOM, f"{(asleep - before) / MIB:.0f} MiB"
        assert (await server.client.turn(conversation, "more")).last_message == "after"


async def test_a_command_that_floods_a_sleeping_client_ends_in_bounded_memory(tmp_path: Path) -> None:
    flood = "head -c 300000000 /dev/zero; echo; echo the end"
    model = ScriptedModel([reply(script(flood, timeout_ms=60_000)), reply(says("done"))])
    async with conversing(Place(tmp_path), model) as server:
        conversation = await server.open()
        before = server.memory()
        server.wire.sleep()
        await server.client.send(
            "sendUserMessage",
            {"conversationId": conversation, "items": [{"type": "text", "data": {"text": "go"}}]},
        )
        asleep = await settled(server)
        server.wire.wake()
        turn = await server.client.rest_of_turn(conversation)
        assert turn.last_message == "done"
        (end,) = turn.of("exec_command_end")
        assert end["exit_code"] == 0
        assert end["stdout"].endswith("the end\n")
        assert asleep - before < 3 * ROOM, f"{(asleep - before) / MIB:.0f} MiB"


async def test_requests_of_a_client_that_reads_nothing_wait_in_its_own_pipe(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.configure()
    async with served(place) as server:
        before = server.memory()
        server.wire.sleep()
        sent = 0
        with anyio.move_on_after(5):
            while True:
                await server.client.send("nonsense", {"text": "x" * 20_000}, id=f"q{sent}")
                sent += 1
        assert server.memory() - before < ROOM
        server.wire.wake()
        assert (await server.client.answer_to("q0"))["error"]["code"] in (-32600, -32601)


async def test_limits_are_set_by_the_environment_and_errors_name_them(tmp_path: Path) -> None:
    small = {"CONVERSATIONS": "2", "LINE_BYTES": "70000", "OUTPUT_BYTES": "2000"}
    place = Place(tmp_path, environment={f"APP_SERVER_MAX_{name}": value for name, value in small.items()})
    model = ScriptedModel([reply(script("seq 1 100000")), reply(says("done"))])
    async with conversing(place, model) as server:
        conversation, _ = await server.open(), await server.open()
        with pytest.raises(Refused) as refused:
            await server.open()
        assert refused.value.code == -32001
        assert refused.value.data == {"kind": "overloaded", "retryable": True}
        await server.wire.write(b'{"id":"long","method":"' + b"x" * 80_000 + b'"}\n')
        too_long = await server.client.anywhere(lambda m: m.get("id") is None and "error" in m)
        assert too_long["error"]["data"] == {"kind": "line_too_long"}
        turn = await server.client.turn(conversation)
        (end,) = turn.of("exec_command_end")
        assert len(end["stdout"]) < 2100
        assert end["stdout"].startswith("1\n2\n")
        assert end["stdout"].endswith("100000\n")
        server.client.log[:] = [e for e in server.client.log if e.message.get("id", "") is not None]


async def test_a_limit_that_is_none_stops_the_start(tmp_path: Path) -> None:
    place = Place(tmp_path, environment={"APP_SERVER_MAX_REQUESTS": "lots"})
    done = await anyio.run_process((SCRIPT,), check=False, env=place.variables())
    assert done.returncode == 2
    assert b"APP_SERVER_MAX_REQUESTS expects a number" in done.stderr
    assert done.stdout == b""
