"""Interrupts of a running turn, messages during a turn, and undo of what it did."""

import json
from pathlib import Path

import anyio
import pytest

from app_server_protocol.encoding import Json
from tests.support.client import Turn
from tests.support.scripted_model import (
    CREATED,
    Hold,
    Reply,
    begins_to_say,
    calls,
    failure,
    reply,
    says,
    script,
    word,
)
from tests.support.world import MakeWorld, World

pytestmark = pytest.mark.scenario


async def test_a_running_command_is_ended_and_the_model_learns_that_it_was(world: MakeWorld) -> None:
    call = script("echo begun; sleep 1000 & sleep 1000")
    async with world(reply(call), reply(says("a new turn"))) as w:
        conversation = await w.open()
        await w.client.say(conversation)
        await w.client.expect("exec_command_output_delta")
        assert await w.client.interrupt(conversation) == {"abortReason": "interrupted"}
        assert w.client.events("turn_aborted") == [{"type": "turn_aborted", "reason": "interrupted"}]
        await w.client.turn(conversation, "go on")
    output = w.model.requests[1].outputs()["c1"]
    assert "aborted" in output
    assert w.model.requests[1].texts()[-1] == "go on"


async def test_a_stream_is_left_and_the_next_turn_is_fresh(world: MakeWorld) -> None:
    forever = Hold()
    async with world(reply(begins_to_say(), word("never ending"), forever), reply(says("again"))) as w:
        conversation = await w.open()
        await w.client.say(conversation, "talk")
        await w.client.expect("agent_message_delta")
        await w.client.interrupt(conversation)
        turn = await w.client.turn(conversation, "go on")
    assert turn.last_message == "again"
    assert w.model.requests[1].texts() == ["talk", "go on"]
    assert w.model.requests[1].texts("assistant") == []


async def test_a_turn_that_waits_for_its_next_try_can_be_interrupted(world: MakeWorld) -> None:
    busy = failure(429, {"error": {"message": "slow down"}}, **{"retry-after": "3600"})
    retrying = {"request_max_retries": 3, "stream_max_retries": 3}
    cut = Reply((CREATED,), cut=True)
    async with world(cut, busy, busy, reply(says("ok")), provider=retrying) as w:
        conversation = await w.open()
        await w.client.say(conversation)
        await w.client.expect("stream_error")
        await w.client.interrupt(conversation)
        await w.client.expect("turn_aborted")


async def test_a_second_interrupt_is_answered_too(world: MakeWorld) -> None:
    async with world(reply(Hold())) as w:
        conversation = await w.open()
        await w.client.say(conversation)
        await w.client.expect("task_started")
        ids = [
            await w.client.send("interruptConversation", {"conversationId": conversation}) for _ in range(3)
        ]
        answers = [await w.client.answer_to(id) for id in ids]
        assert [answer["result"] for answer in answers] == [{"abortReason": "interrupted"}] * 3
        await w.client.anywhere("turn_aborted")
    assert len(w.client.events("turn_aborted")) == 1


async def test_only_the_conversation_that_was_meant_is_interrupted(world: MakeWorld) -> None:
    hold = Hold()
    async with world(reply(hold, says("goes on")), reply(Hold())) as w:
        one, two = await w.open(), await w.open()
        await w.client.say(one)
        await hold.reached.wait()
        await w.client.say(two)
        await w.client.expect("task_started", two)
        await w.client.interrupt(two)
        hold.release()
        assert (await w.client.rest_of_turn(one, start=0)).last_message == "goes on"


async def test_a_message_while_a_command_runs_joins_the_turn(world: MakeWorld) -> None:
    async with world(reply(script("echo begun; read line < gate")), reply(says("both"))) as w:
        w.fifo("gate")
        conversation = await w.open()
        await w.client.say(conversation, "start")
        await w.client.expect("exec_command_output_delta")
        await w.client.say(conversation, "and this")
        # It is answered after the message before it has been handled.
        await w.client.submit(conversation, {"type": "list_custom_prompts"})
        await w.client.expect("list_custom_prompts_response")
        await w.open_gate("gate")
        await w.client.expect("task_complete")
    assert len(w.client.events("task_started")) == 1
    assert w.model.requests[1].texts() == ["start", "and this"]
    kinds = [item.get("role", item["type"]) for item in w.model.requests[1].input]
    assert kinds[-3:] == ["function_call", "function_call_output", "user"]


async def test_a_message_during_the_last_reply_is_not_lost(world: MakeWorld) -> None:
    hold = Hold()
    async with world(reply(hold, says("first")), reply(says("second"))) as w:
        conversation = await w.open()
        await w.client.say(conversation, "start")
        await hold.reached.wait()
        await w.client.say(conversation, "one more thing")
        await w.client.submit(conversation, {"type": "list_custom_prompts"})
        await w.client.expect("list_custom_prompts_response")
        hold.release()
        while (await w.client.expect("agent_message"))["params"]["msg"]["message"] != "second":
            pass
        await w.client.idle()
    assert w.model.requests[1].texts() == ["start", "one more thing"]
    assert w.model.requests[1].texts("assistant") == ["first"]


async def test_a_message_to_an_interrupted_turn_is_not_lost(world: MakeWorld) -> None:
    hold = Hold()
    async with world(reply(hold), reply(says("next"))) as w:
        conversation = await w.open()
        await w.client.say(conversation, "start")
        await hold.reached.wait()
        await w.client.say(conversation, "listen to this")
        await w.client.submit(conversation, {"type": "list_custom_prompts"})
        await w.client.expect("list_custom_prompts_response")
        await w.client.interrupt(conversation)
        await w.client.say(conversation, "well?")
        await w.client.expect("agent_message")
        await w.client.idle()
    assert w.model.requests[-1].texts() == ["start", "listen to this", "well?"]


CONFINED = {"sandbox_mode": "workspace-write", "approval_policy": "never"}


def change(command: str) -> tuple[Reply, Reply]:
    """Return the replies of a turn that runs a command."""
    return reply(script(command)), reply(says("ok"))


async def undo(w: World, conversation: str) -> Json:
    done = await w.client.operate(conversation, {"type": "undo"})
    (completed,) = done.of("undo_completed")
    return completed


def snapshots(w: World) -> list[Json]:
    lines = [json.loads(line) for path in w.rollouts() for line in path.read_text().splitlines()]
    return [line["payload"] for line in lines if line["payload"].get("type") == "ghost_snapshot"]


def objects(w: World) -> set[Path]:
    return {place for place in (w.workspace / ".git" / "objects").rglob("*") if place.is_file()}


@pytest.mark.parametrize("sandbox", ["workspace-write", "read-only"])
async def test_a_turn_that_may_change_nothing_takes_no_snapshot(world: MakeWorld, sandbox: str) -> None:
    replies = (reply(says("ok")),) if sandbox == "workspace-write" else change("cat a.txt")
    config = {"sandbox_mode": sandbox, "approval_policy": "never"}
    async with world(*replies, files={"a.txt": "one\n", "new": "x\n"}, git=True, config=config) as w:
        (w.workspace / "a.txt").write_text("changed\n")
        before = objects(w)
        await w.client.turn(await w.open())
        assert (objects(w), snapshots(w)) == (before, [])


async def test_a_snapshot_is_stored_ahead_of_the_calls_and_again_at_the_end(world: MakeWorld) -> None:
    async with world(*change("echo 2 > a; echo n > n"), files={"sub/a": "1\n"}, git=True) as w:
        conversation = await w.client.open(cwd=str(w.workspace / "sub"))
        await w.client.turn(conversation)
        begin, end = (item["ghost_commit"] for item in snapshots(w))
        assert begin["turn"] == {
            "worktree": str(w.workspace),
            "folder": "sub/",
            "private_files": [],
            "nested_repositories": [],
        }
        assert end == {**begin, "turn": {**begin["turn"], "after": end["turn"]["after"]}}
        assert w.git("diff", "--name-status", begin["id"], end["turn"]["after"]) == "M\tsub/a\nA\tsub/n\n"


async def test_an_undo_that_would_only_touch_the_users_work_fails(world: MakeWorld) -> None:
    async with world(*change("echo 2 > a"), files={"a": "1\n"}, git=True) as w:
        conversation = await w.open()
        await w.client.turn(conversation)
        w.write({"a": "mine\n"})
        for _ in range(2):  # the user may make room for it
            done = await undo(w, conversation)
            assert (done["success"], (w.workspace / "a").read_text()) == (False, "mine\n")
            assert "changed since: a." in done["message"]
        w.write({"a": "2\n"})
        assert (await undo(w, conversation))["success"] is True
        assert (w.workspace / "a").read_text() == "1\n"


async def test_nested_repositories_are_named(world: MakeWorld) -> None:
    def nested(w: World) -> None:
        (w.workspace / "inner").mkdir()
        w.git("init", "-q", cwd=w.workspace / "inner")

    async with world(
        *change("echo 2 > a; echo 2 > inner/f"), files={"a": "1\n"}, git=True, before=nested
    ) as w:
        conversation = await w.open()
        await w.client.turn(conversation)
        assert "Nested repositories are left alone: inner." in (await undo(w, conversation))["message"]
        assert (w.workspace / "inner" / "f").read_text() == "2\n"


async def test_an_undo_in_the_next_server_goes_back_turn_by_turn(world: MakeWorld) -> None:
    replies = (*change("echo 2 > a"), *change("true"), *change("echo 3 > a"))
    async with world(*replies, files={"a": "1\n"}, git=True) as w:
        conversation = await w.open()
        for _ in range(3):
            await w.client.turn(conversation)
        assert (await undo(w, conversation))["success"] is True
        assert (w.workspace / "a").read_text() == "2\n"
    async with world() as w:
        await w.client.resume(conversationId=conversation)
        assert (await undo(w, conversation))["success"] is True
        assert (w.workspace / "a").read_text() == "1\n", (
            "what was undone already, or changed nothing, is passed"
        )
        assert (await undo(w, conversation))["success"] is False


async def test_the_folder_of_the_turn_counts_not_the_present_one(world: MakeWorld) -> None:
    files = {"one/f": "1\n", "two/work": "committed\n"}
    async with world(*change("echo 2 > f"), files=files, git=True) as w:
        w.write({"two/work": "mine\n", "two/new": "mine\n"})
        conversation = await w.client.open(cwd=str(w.workspace / "one"))
        await w.client.turn(conversation)
        op = {"type": "override_turn_context", "cwd": str(w.workspace / "two")}
        await w.client.submit(conversation, op)
        assert (await undo(w, conversation))["success"] is True
        assert (w.workspace / "one" / "f").read_text() == "1\n"
        assert [(w.workspace / "two" / name).read_text() for name in ("work", "new")] == ["mine\n"] * 2


# --- refused
async def test_an_undo_while_a_turn_runs_is_refused_and_the_turn_goes_on(world: MakeWorld) -> None:
    hold = Hold()
    async with world(
        reply(script("echo 2 > a")), reply(begins_to_say(), hold, says("ok")), files={"a": "1\n"}, git=True
    ) as w:
        conversation = await w.open()
        await w.client.say(conversation)
        await hold.reached.wait()
        await w.client.submit(conversation, {"type": "undo"})
        done = await w.client.expect("undo_completed")
        assert done["params"]["msg"]["success"] is False
        hold.release()
        turn: Turn = await w.client.rest_of_turn(conversation)
        assert turn.last_message == "ok"
        assert (w.workspace / "a").read_text() == "2\n"
        assert (await undo(w, conversation))["success"] is True


async def test_an_undo_while_another_conversations_command_runs_there_is_refused(world: MakeWorld) -> None:
    waiting = {"cmd": "cat gate", "shell": "/bin/sh", "login": False, "yield_time_ms": 250}
    replies = (*change("echo 2 > a"), reply(calls("exec_command", waiting)), reply(says("ok")))
    tables = "[features]\nunified_exec = true"
    async with world(*_with_terminal(replies), files={"a": "1\n"}, git=True, tables=tables) as w:
        w.fifo("gate")
        first, second = await w.open(), await w.open()
        await w.client.turn(first)
        await w.client.turn(second)
        done = await undo(w, first)
        assert done["success"] is False
        assert "a command runs in" in done["message"]
        assert (w.workspace / "a").read_text() == "2\n"
        await w.open_gate("gate")
        with anyio.fail_after(30):
            while not (done := await undo(w, first))["success"]:
                assert "a command runs in" in done["message"]
        assert (w.workspace / "a").read_text() == "1\n"


def _with_terminal(replies: tuple[Reply, ...]) -> tuple[Reply, ...]:
    """Return the replies with the command tool that the model has with `unified_exec`."""
    first = {"cmd": "echo 2 > a", "shell": "/bin/sh", "login": False}
    return (reply(calls("exec_command", first)), *replies[1:])


async def test_a_slow_snapshot_is_told_once_and_tried_again_when_asked_for(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app_server.engine.workspace.git.ghost.TIME_LIMIT", 0.2)
    replies = [one for n in range(3) for one in change(f"echo {n} > a")]
    async with world(*replies, files={"a": "1\n"}, git=True) as w:
        exclude = w.workspace / ".git" / "info" / "exclude"
        exclude.unlink(missing_ok=True)
        w.fifo(".git/info/exclude")
        conversation = await w.open()
        for _ in range(2):
            await w.client.turn(conversation)
        warnings = [event["message"] for event in w.client.events("warning")]
        assert [message.startswith("Snapshots disabled in this repository") for message in warnings] == [True]
        exclude.unlink()
        monkeypatch.undo()
        refused = await undo(w, conversation)
        assert (refused["success"], "takes one again" in refused["message"]) == (False, True)
        await w.client.turn(conversation)
        assert (await undo(w, conversation))["success"] is True
        assert (w.workspace / "a").read_text() == "1\n"
