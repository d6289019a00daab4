"""Two servers on one home: writing, listing and archiving at once, one writer per conversation."""

from pathlib import Path

import anyio
import pytest

from tests.faults.rig import Place, Served, served
from tests.support.client import Refused
from tests.support.invariants import rollout, violated_invariants
from tests.support.scripted_model import ScriptedModel, reply, says

CONVERSATIONS = 6
TURNS = 3


async def work(server: Served, name: str, kept: set[str]) -> None:
    """Conversations one after another; every second is archived."""
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
    async with model.serving() as url:
        place.url = url
        place.configure()
        async with served(place) as one, served(place) as two:
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


async def test_what_one_leaves_the_other_takes_up(tmp_path: Path) -> None:
    place = Place(tmp_path)
    model = ScriptedModel([reply(says("first")), reply(says("second"))])
    async with model.serving() as url:
        place.url = url
        place.configure()
        async with served(place) as two:
            async with served(place) as one:
                conversation = await one.open()
                await one.client.turn(conversation, "from one")
            resumed = await two.client.call("resumeConversation", {"conversationId": conversation})
            said = [m["message"] for m in resumed["initialMessages"] if m["type"] == "user_message"]
            assert said == ["from one"]
            await two.client.listen(conversation)
            assert (await two.client.turn(conversation, "from two")).last_message == "second"
