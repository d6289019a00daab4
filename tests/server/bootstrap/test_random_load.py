"""Many conversations at once: turns drawn at random, and streams that are held open."""

import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import pytest

from app_server.cli.demo.scripted_model import Author, Reply, ScriptedModel, reply, runs, says
from app_server_protocol.encoding import Json
from benchmarks.held_load import Shape, play
from tests.support.client import ENDS, Client, Matcher, Refused, text_item
from tests.support.invariants import STORED, is_event, items, rollout, spans, turns
from tests.support.places import LONG, OURS, Place, Served, served

pytestmark = [pytest.mark.process, pytest.mark.faults, pytest.mark.slow]

LIVES, CONVERSATIONS, TURNS, AT_ONCE = (4, 250, 10, 16) if LONG else (2, 10, 5, 8)
SEED = 20_240_229
MIB = 1 << 20
GROWTH = 64 * MIB if LONG else 32 * MIB
"""Allowed growth of a server's memory over its second half, in bytes. Every conversation of the first half is closed by
then.
"""

KINDS = {
    "words": 6,
    "approved": 4,
    "denied": 2,
    "abort": 1,
    "stop-words": 2,
    "stop-command": 2,
    "stop-question": 2,
}
"""Kinds of turns and their weights. `stop` is an interrupt."""

MOMENTS = {
    "stop-words": "agent_message_delta",
    "stop-command": "exec_command_begin",
    "stop-question": "exec_approval_request",
}
"""Event after which a turn of that kind is interrupted."""


def author(request: Json) -> Reply:
    """Return the reply for the kind of turn that the last message of the user names."""
    last = request["input"][-1]
    if last["type"] == "function_call_output":
        return reply(*says("so it is"))
    said = [item for item in request["input"] if item.get("role") == "user"]
    kind, number = said[-1]["content"][0]["text"].split()
    match kind:
        case "words":
            return reply(*says(f"answer to {number}"))
        case "stop-words":
            return reply(*says("and so on " * 200), gap=0.02)
        case "stop-command":
            return reply(runs(["sh", "-c", f"echo {number} > f; sleep 100"], f"call-{number}"))
        case _:
            return reply(runs(["sh", "-c", f"echo {number} > f; cat f"], f"call-{number}"))


def forgetful(model: ScriptedModel) -> Author:
    """Return an author that keeps no requests, because there are many thousands."""

    def write(request: Json) -> Reply:
        model.requests.clear()
        return author(request)

    return write


@dataclass(slots=True)
class Talk:
    """A conversation across all of its servers."""

    id: str
    rollout: Path
    events: list[tuple[str, Json]] = field(default_factory=list)
    """Events that the client received, in order."""
    cut: bool = False
    """Whether a client left in the middle of the conversation, so that more may be stored than was sent."""
    busy: bool = False
    """Whether a turn of the conversation is not over."""
    ids_before: int = 0


@dataclass(slots=True)
class Load:
    chance: random.Random
    talks: dict[str, Talk] = field(default_factory=dict)
    turns: int = 0
    kinds: dict[str, str] = field(default_factory=dict)
    """Kind of the current turn, by conversation."""

    def decide(self, request: Json) -> Json | None:
        match self.kinds[request["params"]["conversationId"]]:
            case "denied":
                return {"decision": "denied"}
            case "abort":
                return {"decision": "abort"}
            case "stop-question":
                return None
            case _:
                return {"decision": "approved"}

    async def life(self, server: Served, talks: Sequence[Talk | None], *, stop_at: int | None) -> None:
        """Converse until all turns are over, or until `stop_at` turns were over: then the client leaves."""
        server.client.decide("execCommandApproval", self.decide)
        waiting = list(talks)
        had = 0

        async def work() -> None:
            nonlocal had
            while waiting:
                talk = await self.opened(server, waiting.pop())
                for _ in range(TURNS):
                    await self.turn(server.client, talk)
                    self.turns += 1
                    had += 1
                    if had == stop_at:
                        group.cancel_scope.cancel()

        async with anyio.create_task_group() as group:
            for _ in range(AT_ONCE):
                group.start_soon(work)

    async def opened(self, server: Served, talk: Talk | None) -> Talk:
        client = server.client
        if talk is None:
            made = await client.call("newConversation", {"cwd": str(server.place.workspace)})
            talk = self.talks[made["conversationId"]] = Talk(
                made["conversationId"], Path(made["rolloutPath"])
            )
        else:
            await client.call("resumeConversation", {"conversationId": talk.id})
        await client.listen(talk.id)
        return talk

    async def turn(self, client: Client, talk: Talk) -> None:
        (kind,) = self.chance.choices(list(KINDS), list(KINDS.values()))
        self.kinds[talk.id] = kind
        start = len(client.log)
        talk.busy = True
        say = {"conversationId": talk.id, "items": [text_item(f"{kind} {self.chance.randrange(1 << 40)}")]}
        await client.call("sendUserMessage", say)
        if kind.startswith("stop-"):
            await client.rest_of_turn(talk.id, until=MOMENTS[kind], start=start)
            await client.call("interruptConversation", {"conversationId": talk.id})
        await client.rest_of_turn(talk.id, until=one_of(ENDS, talk.id), start=start)
        talk.busy = False

    def take_in(self, client: Client) -> None:
        """Take the events that one client received."""
        told: dict[str, list[tuple[str, Json]]] = defaultdict(list)
        for message in client.received():
            if is_event(message):
                params = message["params"]
                told[params["conversationId"]].append((params["id"], params["msg"]))
        for id, events in told.items():
            talk = self.talks[id]
            # The operation numbers of each server begin again.
            talk.events += [(f"{talk.ids_before}-{number}", event) for number, event in events]
            talk.ids_before += 1
            talk.cut = talk.cut or sum(e["type"] == "task_started" for _, e in events) != sum(
                e["type"] in ENDS for _, e in events
            )
        for talk in self.talks.values():
            # A turn may have begun without any event, even its begin.
            talk.cut, talk.busy = talk.cut or talk.busy, False


def one_of(kinds: Sequence[str], conversation: str) -> Matcher:
    def matches(message: Json) -> bool:
        return (
            is_event(message)
            and message["params"].get("conversationId") == conversation
            and message["params"]["msg"]["type"] in kinds
        )

    return matches


def wrong(talk: Talk) -> list[str]:
    """Return the violated rules of one conversation, and stored events that differ from the received ones."""
    whole = not talk.cut
    broken = turns(talk.events, to_the_end=whole) + spans(talk.events, to_the_end=whole)
    broken += items([event for _, event in talk.events]) if whole else []
    lines, problems = rollout(talk.rollout)
    stored = [line["payload"] for line in lines if line["type"] == "event_msg"]
    kept = [event for event in stored if event["type"] in STORED]
    told = [event for _, event in talk.events if event["type"] in STORED]
    if whole and kept != told:
        broken.append(f"stored are {len(kept)} events, told were {len(told)}")
    rest = iter(kept)
    broken += [f"not stored: {event}" for event in told if not any(event == each for each in rest)][:1]
    return [f"{talk.rollout.name}: {problem}" for problem in broken + problems]


async def test_many_conversations_at_random(tmp_path: Path) -> None:
    load = Load(random.Random(SEED))
    place = Place(tmp_path, approval="untrusted")
    model = ScriptedModel(author)
    model.author = forgetful(model)
    async with model.serving() as place.url:
        place.configure()
        left: list[Talk] = []
        for life in range(LIVES):
            last = life == LIVES - 1
            async with served(place) as server:
                begun = [*left, *[None] * (CONVERSATIONS - len(left))]
                stop = None if last else CONVERSATIONS * TURNS * 9 // 10
                await load.life(server, begun, stop_at=stop)
                if last:
                    await archive_all(server, load)
                    await flat(server, load)
            load.take_in(server.client)
            left = [talk for talk in load.talks.values() if talk.cut][: CONVERSATIONS // 2]
    assert load.turns >= LIVES * CONVERSATIONS * TURNS * 9 // 10
    archived = {path.name: path for path in place.home.glob("archived_sessions/**/rollout-*.jsonl")}
    for talk in load.talks.values():
        talk.rollout = archived.get(talk.rollout.name, talk.rollout)
    broken = [problem for talk in load.talks.values() for problem in wrong(talk)]
    assert not broken, "\n".join(broken[:40])


async def archive_all(server: Served, load: Load) -> None:
    for talk in load.talks.values():
        try:
            await server.client.call(
                "archiveConversation", {"conversationId": talk.id, "rolloutPath": str(talk.rollout)}
            )
        except Refused as refused:
            raise AssertionError(f"{talk.id}: {refused}") from refused


async def flat(server: Served, load: Load) -> None:
    """Run the same load again with other conversations, and check that nothing grows."""
    load.take_in(server.client)
    server.client.log.clear()
    server.client._position = 0
    before = memory, descriptors, threads = server.memory(), server.descriptors(), server.threads()
    assert not [name for name in descriptors if "rollout-" in name], (
        "conversations were archived and are open"
    )
    known = set(load.talks)
    await load.life(server, [None] * CONVERSATIONS, stop_at=None)
    for id in set(load.talks) - known:
        await server.client.call(
            "archiveConversation", {"conversationId": id, "rolloutPath": str(load.talks[id].rollout)}
        )
    after = server.memory(), server.descriptors(), server.threads()
    assert after[0] - memory < GROWTH, f"{(after[0] - memory) / MIB:.0f} MiB more"
    assert len(after[1]) <= len(descriptors) + 2, sorted(set(after[1]) - set(descriptors))
    assert after[2] <= threads + 8, (before[2], after[2])


async def test_every_delta_of_many_streams_arrives_in_order() -> None:
    result = await play("app-server", OURS, Shape() if LONG else Shape(20, 200, 2))
    assert result.lost == 0
    assert result.wrong == ()
    assert result.megabytes < 400
