"""Every way to end a working server, and two servers on one home."""

import json
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import pytest

from app_server.engine.storage.rollout_reader import read_rollout
from tests.support.client import Refused
from tests.support.invariants import rollout, unstored, violated_invariants
from tests.support.places import Place, Served, served
from tests.support.scripted_model import Hold, Reply, ScriptedModel, begins_to_say, reply, says, script, word

pytestmark = [pytest.mark.process, pytest.mark.faults]

LEAVES_WITHIN = 2.0 * 4
"""Maximum time of an end, in seconds. Clients grant two seconds; a loaded machine needs more."""

End = Callable[[Served], Awaitable[None]]


async def stdin_closes(server: Served) -> None:
    await server.wire.close()


async def nobody_reads(server: Served) -> None:
    """Close the pipe, and send a request: only the next write finds the broken pipe."""
    await server.close_stdout()
    await server.client.send("getUserAgent")


async def both_close(server: Served) -> None:
    await server.close_stdout()
    await server.wire.close()


def told(number: signal.Signals) -> End:
    async def end(server: Served) -> None:
        server.process.send_signal(number)

    return end


ENDS: dict[str, End] = {
    "stdin closes": stdin_closes,
    "nobody reads": nobody_reads,
    "both close": both_close,
    "SIGTERM": told(signal.SIGTERM),
    "SIGHUP": told(signal.SIGHUP),
    "SIGINT": told(signal.SIGINT),
}

LINGERS = (
    "import os,signal,time; signal.signal(signal.SIGTERM, signal.SIG_IGN); os.setsid(); "
    "print('lives', flush=True); time.sleep(1000)"
)
"""Program that leaves its process group and ignores SIGTERM."""


@pytest.mark.parametrize("name", ENDS)
async def test_an_end_in_the_middle_of_everything(tmp_path: Path, name: str) -> None:
    speaks = reply(begins_to_say(), word("I am in the "), held := Hold())
    stubborn = f'{sys.executable} -I -S -c "{LINGERS}" & wait'
    runs = reply(script(stubborn, timeout_ms=100_000))
    asks = reply(script("touch asked"))
    model = ScriptedModel()
    place = Place(tmp_path, approval="untrusted")
    place.model = model
    async with place.serving_model(), served(place) as server:
        speaking = await begin(server, model, speaks)
        await server.client.expect("agent_message_delta", speaking)
        server.client.decide("execCommandApproval", "approved")
        running = await begin(server, model, runs)
        await server.client.expect("exec_command_output_delta", running)
        server.client._deciders.clear()
        asking = await begin(server, model, asks)
        await server.client.expect("execCommandApproval")
        began = anyio.current_time()
        await ENDS[name](server)
        assert await server.gone() == 0, place.log.read_text()[-2000:]
        assert anyio.current_time() - began < LEAVES_WITHIN
        held.release()
    assert not (place.workspace / "asked").exists()
    stored = {str(path): rollout(path) for path in place.rollouts()}
    assert [problem for _, problems in stored.values() for problem in problems] == []
    assert unstored(server.client.received(), {path: lines for path, (lines, _) in stored.items()}) == []
    by_id = {str(read_rollout(path).meta.id): path.read_text() for path in place.rollouts()}
    assert by_id.keys() == {speaking, running, asking}
    assert '"call_id":"c1"' in by_id[running].replace(" ", "")
    assert "Traceback" not in place.log.read_text()


async def begin(server: Served, model: ScriptedModel, answer: Reply) -> str:
    model.replies.append(answer)
    conversation = await server.open()
    await server.client.say(conversation, f"words of {conversation}")
    return conversation


async def test_a_last_line_without_its_end_is_no_request(tmp_path: Path) -> None:
    """The server does not guess at half a message."""
    place = Place(tmp_path)
    place.configure()
    async with served(place) as server:
        await server.wire.write(json.dumps({"id": 7, "method": "newConversation", "params": {}}).encode())
        await server.wire.close()
        assert await server.gone() == 0
    assert not [m for m in server.client.received() if m.get("id") == 7]
    assert place.rollouts() == []


CONVERSATIONS = 6
TURNS = 3


async def work(server: Served, name: str, kept: set[str]) -> None:
    """Hold one conversation after another; archive every second one."""
    for n in range(CONVERSATIONS):
        conversation = await server.open()
        for turn in range(TURNS):
            await server.client.turn(conversation, f"{name} {n} {turn}")
        opened = (await server.client.call("listConversations", {"pageSize": 100}))["items"]
        (mine,) = [item for item in opened if item["conversationId"] == conversation]
        if n % 2:
            params = {"conversationId": conversation, "rolloutPath": mine["path"]}
            await server.client.call("archiveConversation", params)
        else:
            kept.add(conversation)


async def test_two_servers_on_one_home(tmp_path: Path) -> None:
    place = Place(tmp_path)
    model = ScriptedModel([reply(says("ok"))] * (2 * CONVERSATIONS * TURNS + 2))
    kept: set[str] = set()
    place.model = model
    async with place.serving_model(), served(place) as one, served(place) as two:
        async with anyio.create_task_group() as group:
            group.start_soon(work, one, "one", kept)
            group.start_soon(work, two, "two", kept)
        for server in (one, two):
            listed = (await server.client.call("listConversations", {"pageSize": 100}))["items"]
            assert {item["conversationId"] for item in listed} == kept
        mine = await one.open()
        await one.client.turn(mine, "mine")
        with pytest.raises(Refused):
            await two.client.call("resumeConversation", {"conversationId": mine})
        await one.client.turn(mine, "mine still")
        two_log, one_log = two.client, one.client
    for client in (one_log, two_log):
        assert violated_invariants(client, model.requests, []) == []
    archived = list(place.home.glob("archived_sessions/**/rollout-*.jsonl"))
    assert len(archived) == CONVERSATIONS
    for path in [*place.rollouts(), *archived]:
        lines, problems = rollout(path)
        assert problems == []
        said = [line["payload"]["message"] for line in lines if line["payload"].get("type") == "user_message"]
        assert len({text.split()[0] for text in said}) == 1, "two servers wrote one file"
