"""Exchange of conversations between Codex and this server.

`tests/data/codex-0.58-rollout.jsonl` was recorded by Codex 0.58.0: two turns, the first with reasoning and a command.
If REFERENCE_CODEX names the program itself, conversations are handed over both ways. If REFERENCE_CODEX_THREADS names
one that supports the thread API (0.169), it reads threads that were recorded here:

    REFERENCE_CODEX=/path/to/codex REFERENCE_CODEX_THREADS=/path/to/newer/codex make test ARGS="-k interchange"
"""

import json
import os
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from app_server_protocol.encoding import Json
from tests.support.client import Client
from tests.support.places import OURS, Place, place_in
from tests.support.scripted_model import reply, says, script

pytestmark = pytest.mark.process

RECORDED = Path(__file__).parents[2] / "data" / "codex-0.58-rollout.jsonl"
REFERENCE = os.environ.get("REFERENCE_CODEX", "")

REFERENCE_THREADS = os.environ.get("REFERENCE_CODEX_THREADS", "")

CODEX = (REFERENCE, "app-server")

needs_codex = pytest.mark.skipif(not REFERENCE, reason="REFERENCE_CODEX names no program")
needs_codex_threads = pytest.mark.skipif(
    not REFERENCE_THREADS, reason="REFERENCE_CODEX_THREADS names no program"
)


FIRST_TURN = (reply(says("I look."), script("echo found", "call-1")), reply(says("first answer")))


async def begin(place: Place, client: Client) -> str:
    """Begin a conversation with a message and a command; return its id."""
    conversation = await client.open(cwd=str(place.workspace))
    place.model.replies[:] = FIRST_TURN
    await client.turn(conversation, "first question")
    return conversation


async def go_on(place: Place, client: Client, path: Path, question: str, answer: str) -> Json:
    """Resume the conversation and run a turn; return the answer to the resume."""
    resumed = await client.resume(path=str(path))
    place.model.replies[:] = [reply(says(answer))]
    turn = await client.turn(resumed["conversationId"], question)
    assert turn.last_message == answer
    return resumed


def shown(resumed: Json) -> list[tuple[str, str]]:
    kinds = ("user_message", "agent_message")
    return [(m["type"], m["message"]) for m in resumed["initialMessages"] if m["type"] in kinds]


def lines_of(path: Path) -> list[Json]:
    return [json.loads(line) for line in path.read_text().splitlines()]


# --- the recorded file
async def test_a_recorded_conversation_is_listed_shown_and_goes_on(tmp_path: Path) -> None:
    recorded = lines_of(RECORDED)
    meta = recorded[0]["payload"]
    async with place_in(tmp_path) as place:
        day = place.home / "sessions" / "2026" / "11" / "21"
        day.mkdir(parents=True)
        path = Path(shutil.copy(RECORDED, day / f"rollout-2026-11-21T03-59-23-{meta['id']}.jsonl"))
        async with place.server() as server:
            (listed,) = (await server.client.call("listConversations", {}))["items"]
            assert listed["conversationId"] == meta["id"]
            assert listed["preview"] == "What does echo say?"
            assert listed["timestamp"] == meta["timestamp"]
            resumed = await go_on(place, server.client, path, "And now?", "Now as before.")
        assert resumed["conversationId"] == meta["id"]
        assert shown(resumed) == [
            ("user_message", "What does echo say?"),
            ("agent_message", "I look first."),
            ("agent_message", "It says from-codex."),
            ("user_message", "Thanks."),
            ("agent_message", "You are welcome."),
        ]
        kept = [line["payload"] for line in recorded if line["type"] == "response_item"]
        (request,) = place.model.requests
        assert request.input[: len(kept)] == kept, "the model hears what it heard"
        assert request.texts()[-1] == "And now?"
        stored = lines_of(path)
        assert stored[: len(recorded)] == recorded, "what was there stays as it was"
        assert {line["type"] for line in stored[len(recorded) :]} == {
            "response_item",
            "event_msg",
            "turn_context",
        }


async def test_lines_are_spelled_as_codex_spells_them(unversioned: Path) -> None:
    """The same turns, recorded here, have the same kinds of lines with the same fields."""
    async with place_in(unversioned) as place:
        async with place.server() as server:
            conversation = await server.open()
            place.model.replies[:] = [
                reply(says("I look first."), script("echo from-codex", "call-1")),
                reply(says("It says from-codex.")),
            ]
            await server.client.turn(conversation, "What does echo say?")
        (path,) = place.rollouts()
        ours, codex = spelling(lines_of(path)), spelling(lines_of(RECORDED))
        assert ours.keys() <= codex.keys()
        assert {kind: fields for kind, fields in codex.items() if kind in ours} == ours


def spelling(lines: list[Json]) -> dict[str, set[str]]:
    """Return the fields that each kind of line always has."""
    found: dict[str, set[str]] = {}
    for line in lines:
        kind = f"{line['type']} {line['payload'].get('type', '')}"
        found[kind] = found.get(kind, set(line["payload"])) & set(line["payload"])
    return found


# --- the program
@needs_codex
async def test_codex_lists_what_was_recorded_here(tmp_path: Path) -> None:
    async with place_in(tmp_path) as place:
        async with place.server() as ours:
            conversation = await begin(place, ours.client)
        answers = []
        for command in (CODEX, OURS):
            async with place.server(command=command) as server:
                answers.append(await server.client.call("listConversations", {}))
        assert [item["conversationId"] for item in answers[0]["items"]] == [conversation]
        assert answers[0] == answers[1]


@needs_codex_threads
async def test_codex_reads_a_thread_recorded_here_with_its_turns(tmp_path: Path) -> None:
    codex = (REFERENCE_THREADS, "app-server")
    async with place_in(tmp_path) as place:
        async with place.server() as ours:
            thread, turn = await begin_thread(place, ours.client)
        params = {"threadId": thread, "includeTurns": True}
        read = []
        for command in (OURS, codex):
            async with place.server(command=command) as server:
                read.append((await server.client.call("thread/read", params))["thread"])
    for each in read:
        assert [(t["id"], t["status"], t["error"]) for t in each["turns"]] == [(turn, "completed", None)]
    here, there = (each["turns"][0] for each in read)
    times = ("startedAt", "completedAt", "durationMs")
    assert [here[time] for time in times] == [there[time] for time in times]
    said = [[i for i in t["items"] if i["type"] in ("userMessage", "agentMessage")] for t in (here, there)]
    assert [i.get("text") for i in said[0]] == [i.get("text") for i in said[1]]


async def begin_thread(place: Place, client: Client) -> tuple[str, str]:
    """Begin a thread with one turn, as `begin` does; return the ids of both."""
    started = await client.call("thread/start", {"cwd": str(place.workspace)})
    place.model.replies[:] = FIRST_TURN
    thread = started["thread"]["id"]
    words = [{"type": "text", "text": "first question"}]
    turn = (await client.call("turn/start", {"threadId": thread, "input": words}))["turn"]["id"]
    await client.expect("turn/completed")
    return thread, turn


@needs_codex
@pytest.mark.parametrize(
    ("there", "back", "begun"),
    [(OURS, CODEX, begin), (CODEX, OURS, begin), (CODEX, OURS, begin_thread)],
    ids=["recorded by codex", "recorded here", "a thread recorded here"],
)
async def test_what_one_recorded_goes_on_in_the_other_and_there_again(
    tmp_path: Path,
    there: tuple[str, str],
    back: tuple[str, str],
    begun: Callable[[Place, Client], Awaitable[object]],
) -> None:
    async with place_in(tmp_path) as place:
        async with place.server(command=back) as first:
            await begun(place, first.client)
        (path,) = place.rollouts()
        async with place.server(command=there) as server:
            resumed = await go_on(place, server.client, path, "second question", "second answer")
            assert shown(resumed) == [
                ("user_message", "first question"),
                ("agent_message", "I look."),
                ("agent_message", "first answer"),
            ]
        async with place.server(command=back) as server:
            resumed = await go_on(place, server.client, path, "third question", "third answer")
            assert shown(resumed)[3:] == [
                ("user_message", "second question"),
                ("agent_message", "second answer"),
            ]
        assert place.rollouts() == [path], "it is one file all the way"
        request = place.model.requests[-1]
        assert request.texts() == ["first question", "second question", "third question"]
        assert request.texts("assistant") == ["I look.", "first answer", "second answer"]
        assert "found" in request.outputs()["call-1"]
