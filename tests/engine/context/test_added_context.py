"""Additions of a client of the thread API to the user's input: context for the model, and folders with skills."""

import pytest

from app_server_protocol.encoding import Json
from tests.support.client import Refused
from tests.support.scripted_model import reply, says
from tests.support.thread_client import items, say, start, turn
from tests.support.world import EXPERIMENTAL, MakeWorld

pytestmark = pytest.mark.scenario

HOST: Json = {"vscode.agentHost": {"kind": "application", "value": "words of the host"}}


def other(value: str) -> Json:
    return {"page": {"kind": "untrusted", "value": value}}


async def test_context_is_sent_before_the_words_and_once_while_it_stays(world: MakeWorld) -> None:
    replies = [reply(says("ok", f"m{n}")) for n in range(4)]
    async with world(*replies, capabilities=EXPERIMENTAL) as w:
        thread = await start(w.client)
        await say(w.client, thread, "one", additionalContext={**HOST, **other("first")})
        await say(w.client, thread, "two", additionalContext={**HOST, **other("second")})
        await say(w.client, thread, "three")
        await say(w.client, thread, "four", additionalContext=HOST)
        sent = w.model.requests[-1].input
        shown = [item["content"][0]["text"] for item in items(w, kind="userMessage")]
    told = "<vscode.agentHost>words of the host</vscode.agentHost>"
    places = [n for n, item in enumerate(sent) if item.get("role") == "developer" and told in str(item)]
    spoken = {word: n for n, item in enumerate(sent) for word in ("one", "four") if f"'{word}'" in str(item)}
    assert len(places) == 2
    assert places[0] < spoken["one"] < places[1] < spoken["four"]
    outputs = [item["output"] for item in sent if item["type"] == "function_call_output"]
    assert outputs == ["first", "second"]
    assert shown == ["one", "two", "three", "four"]


async def test_context_alone_begins_a_turn(world: MakeWorld) -> None:
    async with world(reply(says("ok")), capabilities=EXPERIMENTAL) as w:
        thread = await start(w.client)
        await w.client.call("turn/start", {"threadId": thread, "input": [], "additionalContext": HOST})
        await w.client.expect("turn/completed")
        assert "words of the host" in str(w.model.requests[0].input)
        assert items(w, kind="userMessage") == []


@pytest.mark.parametrize(
    ("context", "why"),
    [
        ({"a b": HOST["vscode.agentHost"]}, "a key has 1 to 128 letters"),
        ({"x><": HOST["vscode.agentHost"]}, "a key has 1 to 128 letters"),
        ({"k": {"kind": "application", "value": "x" * 65537}}, "a value has at most 65536 bytes"),
        ({f"k{n}": HOST["vscode.agentHost"] for n in range(65)}, "at most 64 entries"),
    ],
)
async def test_context_that_is_not_taken(world: MakeWorld, context: Json, why: str) -> None:
    async with world(capabilities=EXPERIMENTAL) as w:
        thread = await start(w.client)
        with pytest.raises(Refused, match=why) as refused:
            await turn(w.client, thread, additionalContext=context)
        assert refused.value.code == -32602


async def test_skills_of_folders_that_a_thread_brings_are_listed_for_it(world: MakeWorld) -> None:
    async with world(reply(says("ok")), reply(says("ok")), capabilities=EXPERIMENTAL) as w:
        folder = w.root / "brought"
        w.write({"cap/SKILL.md": "---\nname: cap\ndescription: a brought skill\n---\nbody of cap"}, folder)
        location = {"type": "environment", "environmentId": "local", "path": str(folder)}
        roots = [{"id": "one", "location": location}]
        await say(w.client, await start(w.client, selectedCapabilityRoots=roots))
        await say(w.client, await start(w.client))
        assert ["a brought skill" in str(request.input) for request in w.model.requests] == [True, False]
        far = [{"id": "one", "location": {**location, "environmentId": "far"}}]
        with pytest.raises(Refused, match="the only environment is `local`"):
            await start(w.client, selectedCapabilityRoots=far)
