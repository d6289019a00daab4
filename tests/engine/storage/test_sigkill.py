"""A server is killed at arbitrary moments, again and again. Everything that it sent to the client is there afterwards.

By default it is killed ten times; `make faults` (FAULTS=long) kills two hundred times. The moments are drawn from a
seed that a failure names: `FAULTS_SEED=… make faults ARGS="-k sigkill"` plays them again, as far as a race can be
repeated.
"""

import json
import os
import random
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import anyio
import pytest
from anyio.abc import Process

from app_server.engine.storage.rollout_reader import read_rollout
from app_server_protocol.encoding import Json
from tests.support.client import Client, ProcessWire
from tests.support.invariants import orphans
from tests.support.places import LONG, Place, place_in, served
from tests.support.scripted_model import Hold, Reply, begins_to_say, reply, says, script, word
from tests.support.waiting import until

pytestmark = [pytest.mark.process, pytest.mark.faults, pytest.mark.slow]

KILLS = 200 if LONG else 10
SEED = os.environ.get("FAULTS_SEED") or str(random.randrange(1 << 32))
KILLS_OF_ONE_CONVERSATION = 20
LATEST_MESSAGE = 60
"""Highest number of a message at which a server is killed. A turn has about two dozen messages, and four precede the
first turn.
"""
PATIENCE = 60.0
"""Maximum life of one server, in seconds."""
LONGEST_PAUSE = 0.02
"""Longest pause between a message and the kill, in seconds: it reaches into the events after the message."""


@dataclass(frozen=True, slots=True)
class Moment:
    """Moment at which a server is killed: a pause after the message with that number."""

    message: int
    pause: float


class DoomedWire(ProcessWire):
    """Wire that kills the server at its moment. What the server had written by then is still read."""

    def __init__(self, process: Process, moment: Moment | None) -> None:
        super().__init__(process)
        self._process, self._moment, self.killed = process, moment, False

    async def lines(self) -> AsyncIterator[bytes]:
        count = 0
        async for line in super().lines():
            yield line
            count += 1
            if self._moment is not None and count == self._moment.message:
                await anyio.sleep(self._moment.pause)
                self.kill()

    async def write(self, data: bytes) -> None:
        if not self.killed:  # asyncio of 3.11 would report the broken pipe as an unhandled error
            await super().write(data)

    def kill(self) -> None:
        self.killed = True
        self._process.kill()


@dataclass(slots=True)
class Told:
    """The messages of one conversation that a client received, over all of its servers."""

    questions: list[str] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)
    outputs: dict[str, str] = field(default_factory=dict)
    """Outputs of commands, by the call's id."""

    def hear(self, received: Iterable[Json]) -> None:
        for message in received:
            if "id" in message or not message.get("method", "").startswith("codex/event/"):
                continue
            match message["params"]["msg"]:
                case {"type": "user_message", "message": str(text)}:
                    self.questions.append(text)
                case {"type": "agent_message", "message": str(text)}:
                    self.answers.append(text)
                case {"type": "exec_command_end", "call_id": str(call), "aggregated_output": str(output)}:
                    self.outputs[call] = output

    def missing_in(self, shown: Sequence[Json]) -> list[str]:
        """Return received texts that a resumed conversation does not show."""
        questions = [m["message"] for m in shown if m["type"] == "user_message"]
        answers = [m["message"] for m in shown if m["type"] == "agent_message"]
        return _missing(self.questions, questions) + _missing(self.answers, answers)

    def missing_in_request(self, input: Sequence[Json]) -> list[str]:
        """Return facts that the model's input lacks, and input that the model could not make sense of."""
        text = json.dumps(input)
        outputs = {i["call_id"]: str(i["output"]) for i in input if i["type"] == "function_call_output"}
        lost = [
            f"the output of {call}"
            for call, said in self.outputs.items()
            if said.strip() not in outputs.get(call, "")
        ]
        return (
            [word for word in (*self.questions, *self.answers) if f'"{word}"' not in text]
            + lost
            + orphans(input)
        )


def _missing(wanted: Sequence[str], found: Sequence[str]) -> list[str]:
    """Return the wanted texts that were not found in that order, once each."""
    if [each for each in found if each in set(wanted)] == list(wanted):
        return []
    return [each for each in wanted if each not in found] or [f"order of {found}"]


@dataclass(slots=True)
class Lives:
    """One home with one server after another."""

    place: Place
    turns: int = 0
    conversation: str | None = None
    told: Told = field(default_factory=Told)
    resumed: int = 0
    kills: int = 0

    async def live(self, moment: Moment | None) -> None:
        """Run one server from its start to its end."""
        wiring = partial(DoomedWire, moment=moment)
        with anyio.fail_after(PATIENCE):
            async with served(self.place, initialize=False, wiring=wiring) as server:
                client, wire = server.client, server.wire
                assert isinstance(wire, DoomedWire)
                client.decide("execCommandApproval", "approved")
                try:
                    await self.talk(client, forever=moment is not None)
                except (AssertionError, ConnectionError):
                    if not wire.killed:
                        raise
                if wire.killed:
                    await server.process.wait()
                    await until(lambda: client.closed, "what the server had written is read")
        self.kills += wire.killed
        self.told.hear(client.received())

    async def talk(self, client: Client, *, forever: bool) -> None:
        conversation = await self.begin(client)
        first = len(self.place.model.requests)
        while True:
            self.turns += 1
            self.place.model.replies[:] = replies_of(self.turns)
            await client.turn(conversation, f"question-{self.turns}")
            if len(self.place.model.requests) > first:
                lost = self.told.missing_in_request(self.place.model.requests[first].input)
                assert_nothing(lost, "the model was not sent")
            if not forever:
                return

    async def begin(self, client: Client) -> str:
        """Begin the conversation or resume it, and check what it shows; return its id."""
        await client.initialize()
        if self.conversation is None:
            opened = await client.call("newConversation", {"cwd": str(self.place.workspace)})
            self.conversation = str(opened["conversationId"])
        else:
            resumed = await client.call("resumeConversation", {"conversationId": self.conversation})
            assert_nothing(self.told.missing_in(resumed["initialMessages"]), "a resumed conversation lacks")
            self.resumed += 1
        await client.listen(self.conversation)
        return self.conversation


class Lost(Exception):
    """Something that the client received is lost. It is no AssertionError, because that also means that the server has
    left.
    """


def assert_nothing(lost: Sequence[str], what: str) -> None:
    if lost:
        raise Lost(f"seed {SEED}: {what}: {', '.join(lost)}")


def replies_of(turn: int) -> list[Reply]:
    """Return the replies of a turn: a message, a command that needs approval, a message."""
    look = script(f"echo out-{turn} | tee kept", call_id=f"call-{turn}")
    return [
        reply(begins_to_say(), word("lo"), word("ok"), says(f"look-{turn}"), look),
        reply(begins_to_say(), *(word(letter) for letter in "answer"), says(f"answer-{turn}")),
    ]


async def test_what_a_client_received_survives_sigkill_at_any_moment(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    async with place_in(tmp_path, approval="untrusted") as place:
        lives = Lives(place)
        ended: list[tuple[str, Told]] = []
        while lives.kills < KILLS:
            await lives.live(Moment(chance.randint(1, LATEST_MESSAGE), chance.uniform(0, LONGEST_PAUSE)))
            assert_nothing(unreadable(lives.place.rollouts()), "cannot be read")
            if lives.kills % KILLS_OF_ONE_CONVERSATION == 0 and lives.conversation is not None:
                await lives.live(None)
                ended.append((lives.conversation, lives.told))
                lives.conversation, lives.told = None, Told()
        if lives.conversation is not None:
            await lives.live(None)
            ended.append((lives.conversation, lives.told))
        await all_are_there(lives, ended)
    assert lives.resumed > KILLS // 2, "the servers hardly came to their conversations"
    assert sum(len(told.answers) for _, told in ended) > KILLS // 2, "the servers hardly came to speak"


async def all_are_there(lives: Lives, ended: Sequence[tuple[str, Told]]) -> None:
    for conversation, told in ended:
        lives.conversation, lives.told = conversation, told
        await lives.live(None)
    stored = {read_rollout(path).meta.id for path in lives.place.rollouts()}
    assert stored >= {conversation for conversation, _ in ended}


def unreadable(rollouts: Sequence[Path]) -> list[str]:
    """Return files with an unreadable line other than a torn last one."""
    found = []
    for path in rollouts:
        *whole, _ = path.read_bytes().split(b"\n")
        found += [f"{path.name}: {line[:80]!r}" for line in whole if not is_json(line)]
        if whole:
            read_rollout(path)
    return found


def is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


async def test_what_a_command_printed_is_kept_though_the_reply_was_never_complete(tmp_path: Path) -> None:
    """The output of the command has no place in the history yet, but the client saw the command end, and it took
    effect.
    """
    forever = Hold()
    answer = reply(script("echo printed", call_id="call-1"), forever)
    async with place_in(tmp_path, approval="untrusted") as place:
        place.model.replies[:] = [answer]
        lives = Lives(place)
        async with served(place, initialize=False) as server:
            server.client.decide("execCommandApproval", "approved")
            conversation = await lives.begin(server.client)
            await server.client.say(conversation, "question")
            await server.client.expect("exec_command_end")
            await server.kill()
            await until(lambda: server.client.closed, "what the server had written is read")
        forever.release()
        lives.told.hear(server.client.received())
        assert lives.told.outputs == {"call-1": "printed\n"}
        await lives.live(None)
    assert len(place.model.requests) > 1, "the conversation went on"
