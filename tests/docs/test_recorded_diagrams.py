"""The sequence diagrams of the documentation match real runs. `make diagrams` records them anew."""

import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.support.scripted_model import Hold, Reply, begins_to_say, patches, reply, says, script, word
from tests.support.sequence_diagrams import ROOT, diagram, show, shown
from tests.support.thread_client import ended, start, turn, words
from tests.support.world import MakeWorld, World

pytestmark = pytest.mark.scenario

RECORD = "RECORD_DIAGRAMS"
CONVERSATIONS = ROOT / "protocol" / "app_server_protocol" / "export" / "runs.md"
"""Page with the recorded runs. `python -m app_server_protocol.export` makes it a part of docs/protocol.md."""
THREADS = ROOT / "docs" / "threads.md"
PATCH = "*** Begin Patch\n*** Add File: greet.txt\n+hello\n*** End Patch"


# --- the conversation API
async def a_conversation(w: World) -> None:
    await w.client.turn(await w.open(approvalPolicy="untrusted"), "Does it work?")


async def a_command_of_a_conversation(w: World) -> None:
    w.client.decide("execCommandApproval", "approved")
    await w.client.turn(await w.open(approvalPolicy="untrusted"), "Run it")


async def an_interrupted_conversation(w: World) -> None:
    conversation = await w.open()
    await w.client.say(conversation, "Tell me a story")
    await w.client.expect("agent_message_delta")
    await w.client.call("interruptConversation", {"conversationId": conversation})
    await w.client.expect("turn_aborted")


# --- the thread API
async def opened(w: World) -> str:
    thread = await start(w.client, approvalPolicy="untrusted")
    await w.client.expect("thread/started")
    return thread


async def a_thread(w: World) -> None:
    thread = await opened(w)
    await ended(w.client, await turn(w.client, thread, "Does it work?"))


async def a_thread_with_approvals(w: World) -> None:
    w.client.decide("item/commandExecution/requestApproval", {"decision": "accept"})
    w.client.decide("item/fileChange/requestApproval", {"decision": "decline"})
    thread = await opened(w)
    await ended(w.client, await turn(w.client, thread, "Run it, then greet"))


async def a_thread_that_is_steered_and_interrupted(w: World) -> None:
    thread = await opened(w)
    id = await turn(w.client, thread, "Tell me a story")
    await w.client.expect("item/agentMessage/delta")
    steered = {"threadId": thread, "expectedTurnId": id, "input": words("About cats")}
    await w.client.call("turn/steer", steered)
    await w.client.call("turn/interrupt", {"threadId": thread, "turnId": id})
    await ended(w.client, id)


async def a_thread_that_is_resumed(w: World) -> None:
    thread = w.rollouts()[0].stem[-36:]
    await w.client.call("thread/resume", {"threadId": thread})
    await ended(w.client, await turn(w.client, thread, "And now?"))


Run = Callable[[World], Awaitable[None]]


def speaks() -> tuple[Reply, ...]:
    return (reply(begins_to_say(), word("It "), word("works."), says("It works.")),)


def asks() -> tuple[Reply, ...]:
    return reply(script("./check.sh")), *speaks()


def asks_twice() -> tuple[Reply, ...]:
    return reply(script("./check.sh")), reply(patches(PATCH, "c2")), *speaks()


def does_not_end() -> tuple[Reply, ...]:
    return (reply(begins_to_say(), word("Once "), Hold()),)


RUNS: dict[str, tuple[Path, Run, Callable[[], tuple[Reply, ...]]]] = {
    "a conversation": (CONVERSATIONS, a_conversation, speaks),
    "a command that is asked about": (CONVERSATIONS, a_command_of_a_conversation, asks),
    "an interrupt": (CONVERSATIONS, an_interrupted_conversation, does_not_end),
    "a turn": (THREADS, a_thread, speaks),
    "approvals": (THREADS, a_thread_with_approvals, asks_twice),
    "steering and interrupting": (THREADS, a_thread_that_is_steered_and_interrupted, does_not_end),
    "resuming": (THREADS, a_thread_that_is_resumed, speaks),
}


@pytest.mark.parametrize("name", RUNS)
async def test_a_diagram_is_what_happens(world: MakeWorld, name: str) -> None:
    document, run, replies = RUNS[name]
    check = {"check.sh": "#!/bin/sh\necho fine\n"}
    if name == "resuming":
        async with world(*speaks()) as w:
            await a_thread(w)
    async with world(*replies(), files=check) as w:
        (w.workspace / "check.sh").chmod(0o755)
        await run(w)
        log = list(w.client.log)
    made = diagram(log)
    if os.environ.get(RECORD):
        show(document, name, made)
    assert shown(document, name) == made
