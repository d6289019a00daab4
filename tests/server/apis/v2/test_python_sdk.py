"""The Python SDK of the makers of codex, which runs any program that it is given; also with `app-server inspect`
between.
"""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeVar

import anyio
import anyio.to_thread
import pytest

from app_server_protocol.encoding import Json
from tests.support.program import SCRIPT
from tests.support.scripted_model import Hold, begins_to_say, calls, reply, says, script, word
from tests.support.shared import shared_by_wish
from tests.support.world import MakeWorld, World

pytestmark = [pytest.mark.process, pytest.mark.integration]

sdk: Any = pytest.importorskip("openai_codex")
wire: Any = pytest.importorskip("openai_codex.client")
T = TypeVar("T")

PATIENCE = 60.0


def started(w: World, program: str = SCRIPT) -> AbstractContextManager[Any]:
    """Return the SDK with a server of its own over the home of this world, or with the server that the program finds
    there.
    """
    config = sdk.CodexConfig(codex_bin=program, cwd=str(w.workspace), env=dict(w.environment))
    context: AbstractContextManager[Any] = sdk.Codex(config)
    return context


async def blocking(work: Callable[[], T]) -> T:
    """Run the SDK's blocking work in a thread, with a time limit."""
    with anyio.fail_after(PATIENCE):
        return await anyio.to_thread.run_sync(work, abandon_on_cancel=True)


async def test_a_turn_is_run_to_its_result(world: MakeWorld) -> None:
    async with world(reply(script("echo hi > made")), reply(says("It is made."))) as w:

        def work() -> Any:
            with started(w) as codex:
                thread = codex.thread_start(sandbox=sdk.Sandbox.workspace_write)
                return thread.id, thread.run("Make it.")

        thread_id, result = await blocking(work)
        assert result.final_response == "It is made."
        assert result.status.value == "completed"
        assert result.usage.total.total_tokens > 0
        assert "commandExecution" in [item.root.type for item in result.items]
        assert (w.workspace / "made").read_text() == "hi\n"
        assert [path.name.endswith(f"{thread_id}.jsonl") for path in w.rollouts()] == [True]


async def test_a_turn_over_a_shared_server_is_run_to_its_result(world: MakeWorld) -> None:
    async with (
        world(reply(script("echo hi > made")), reply(says("It is made."))) as w,
        shared_by_wish(w.environment),
    ):
        proxy = w.root / "proxy"
        proxy.write_text(f"#!/bin/sh\nexec {SCRIPT} proxy\n")  # the address that the SDK names would win
        proxy.chmod(0o755)

        def work() -> Any:
            with started(w, str(proxy)) as codex:
                return codex.thread_start(sandbox=sdk.Sandbox.workspace_write).run("Make it.")

        result = await blocking(work)
        assert (result.final_response, result.status.value) == ("It is made.", "completed")
        assert (w.workspace / "made").read_text() == "hi\n"


async def test_a_turn_is_streamed(world: MakeWorld) -> None:
    async with world(reply(begins_to_say(), word("a"), word(" b"), says("a b"))) as w:

        def work() -> list[Any]:
            with started(w) as codex:
                return list(codex.thread_start().turn("hi").stream())

        events = await blocking(work)
        methods = [event.method for event in events]
        assert methods[0] == "turn/started"
        assert methods[-1] == "turn/completed"
        deltas = [event.payload.delta for event in events if event.method == "item/agentMessage/delta"]
        assert "".join(deltas) == "a b"
        unknown = [event.method for event in events if type(event.payload).__name__ == "UnknownNotification"]
        assert unknown == [], "of these the SDK knows the shape"


@pytest.mark.parametrize(("decision", "made"), [("accept", True), ("decline", False)])
async def test_its_handler_is_asked(world: MakeWorld, decision: str, made: bool) -> None:
    replies = reply(script("echo hi > made")), reply(says("done"))
    async with world(*replies, config={"approval_policy": "untrusted"}) as w:
        asked: list[tuple[str, Json]] = []

        def answer(method: str, params: Json) -> Json:
            asked.append((method, params))
            return {"decision": decision}

        def work() -> Any:
            config = sdk.CodexConfig(codex_bin=SCRIPT, cwd=str(w.workspace), env=dict(w.environment))
            with wire.CodexClient(config, approval_handler=answer) as client:
                client.initialize()
                thread = client.thread_start({"cwd": str(w.workspace)}).thread.id
                turn = client.turn_start(thread, "Make it.").turn.id
                return client.wait_for_turn_completed(turn).turn.status.value

        assert await blocking(work) == "completed"
        [(method, params)] = asked
        assert method == "item/commandExecution/requestApproval"
        assert "echo hi > made" in params["command"]
        assert (w.workspace / "made").exists() is made


async def test_a_turn_is_interrupted(world: MakeWorld) -> None:
    hold = Hold()
    async with world(reply(begins_to_say(), word("a"), hold, says("a b"))) as w:

        def work() -> tuple[str, int]:
            with started(w) as codex:
                turn = codex.thread_start().turn("hi")
                interrupts = 0
                for event in turn.stream():
                    if event.method == "item/agentMessage/delta":
                        turn.interrupt()
                        interrupts += 1
                return event.payload.turn.status.value, interrupts

        assert await blocking(work) == ("interrupted", 1)
        hold.release()


async def test_words_join_a_turn(world: MakeWorld) -> None:
    hold = Hold()
    async with world(reply(begins_to_say(), word("a"), hold, says("a b")), reply(says("both"))) as w:

        def work() -> tuple[bool, str, list[str]]:
            with started(w) as codex:
                turn = codex.thread_start().turn("first")
                joined, texts = "", list[str]()
                for event in turn.stream():
                    if event.method == "item/agentMessage/delta" and not joined:
                        joined = turn.steer("second").turn_id
                        anyio.from_thread.run_sync(hold.release)
                    if event.method == "item/completed" and event.payload.item.root.type == "agentMessage":
                        texts.append(event.payload.item.root.text)
                return joined == turn.id, event.payload.turn.status.value, texts

        assert await blocking(work) == (True, "completed", ["a b", "both"])
        assert "second" in str(w.model.requests[1].body["input"])


async def test_a_thread_is_listed_and_resumed_by_another_server(world: MakeWorld) -> None:
    async with world(reply(says("one")), reply(says("two"))) as w:

        def begin() -> str:
            with started(w) as codex:
                thread = codex.thread_start()
                thread.run("first words")
                id: str = thread.id
                return id

        thread_id = await blocking(begin)

        def go_on() -> tuple[list[str], str, int]:
            with started(w) as codex:
                listed = [each.id for each in codex.thread_list(cwd=str(w.workspace)).data]
                thread = codex.thread_resume(thread_id)
                last = thread.run("second words").final_response
                return listed, last, len(thread.read(include_turns=True).thread.turns)

        assert await blocking(go_on) == ([thread_id], "two", 2)
        said = str(w.model.requests[1].body["input"])
        assert said.index("first words") < said.index("one") < said.index("second words")


async def test_a_goal_begins_turns_until_it_is_complete(world: MakeWorld) -> None:
    complete = calls("update_goal", {"status": "complete"})
    async with world(reply(says("working")), reply(complete), reply(says("done"))) as w:

        def work() -> list[str]:
            config = sdk.CodexConfig(codex_bin=SCRIPT, cwd=str(w.workspace), env=dict(w.environment))
            with wire.CodexClient(config) as client:
                client.initialize()
                thread = client.thread_start({"cwd": str(w.workspace)}).thread.id
                state, _ = client.start_goal_operation(thread, "Write a poem.")
                seen: list[str] = []
                while not state.is_finished() or seen[-1] != "turn/completed":
                    event = client.next_goal_notification(state)
                    is_said = event.method == "item/completed"
                    seen.append(event.payload.item.root.text if is_said else event.method)
                return [each for each in seen if "/" not in each]

        assert await blocking(work) == ["working", "done"]


async def test_its_errors_are_those_of_the_server(world: MakeWorld) -> None:
    async with world() as w:

        def work() -> str:
            with started(w) as codex, pytest.raises(sdk.CodexRpcError) as refused:
                codex.thread_resume("01a1b2c3-0000-7000-8000-000000000000")
            return str(refused.value)

        assert "no rollout found for thread id" in await blocking(work)


def inspecting(w: World, record: Path) -> str:
    """Write a program that the SDK takes for the server; return its path."""
    program = w.root / "inspected"
    program.write_text(f'#!/bin/sh\nexec {SCRIPT} inspect --record {record} -- {SCRIPT} "$@"\n')
    program.chmod(0o700)
    return str(program)


async def test_the_sdk_runs_turns_through_the_inspector(world: MakeWorld) -> None:
    replies = reply(script("echo hi > made")), reply(begins_to_say(), word("a"), word(" b"), says("a b"))
    async with world(*replies) as w:
        record = w.root / "record.jsonl"
        config = sdk.CodexConfig(
            codex_bin=inspecting(w, record), cwd=str(w.workspace), env=dict(w.environment)
        )

        def work() -> Any:
            with sdk.Codex(config) as codex:
                thread = codex.thread_start(sandbox=sdk.Sandbox.workspace_write)
                return thread.run("Make it.")

        result = await blocking(work)
        assert result.final_response == "a b"
        assert (w.workspace / "made").read_text() == "hi\n"
        lines = [json.loads(line) for line in record.read_text().splitlines()]
        methods = [line["message"].get("method") for line in lines if "message" in line]
        assert "turn/completed" in methods
        assert methods.count("item/agentMessage/delta") >= 2
