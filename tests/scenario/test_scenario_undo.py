"""Undo in whole conversations: when snapshots are taken, what an undo says, when it is refused."""

import json
from pathlib import Path

import anyio
import pytest

from protocol.base import Json
from tests.support.client import Turn
from tests.support.scripted_model import Hold, Reply, begins_to_say, calls, reply, says, script
from tests.support.world import MakeWorld, World

CONFINED = {"sandbox_mode": "workspace-write", "approval_policy": "never"}


def change(command: str) -> tuple[Reply, Reply]:
    """The replies of a turn that runs a command."""
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


async def test_what_the_user_did_since_is_kept_and_named(world: MakeWorld) -> None:
    files = {"a": "1\n", "b": "1\n", "c": "1\n"}
    async with world(*change("echo 2 > a; echo 2 > b; echo 2 > n"), files=files, git=True) as w:
        conversation = await w.open()
        await w.client.turn(conversation)
        w.write({"a": "mine\n", "c": "mine\n", "notes": "mine\n"})
        done = await undo(w, conversation)
        assert done["success"] is True
        assert "Kept as they are, because they were changed since: a." in done["message"]
        left = {place.name: place.read_text() for place in w.workspace.iterdir() if place.is_file()}
        assert left == {"a": "mine\n", "b": "1\n", "c": "mine\n", "notes": "mine\n"}
        again = await undo(w, conversation)
        assert (again["success"], again["message"]) == (False, "No ghost snapshot available to undo.")


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
        await w.client.call("resumeConversation", {"conversationId": conversation})
        await w.client.listen(conversation)
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
    """With `unified_exec` the model has another tool for commands."""
    first = {"cmd": "echo 2 > a", "shell": "/bin/sh", "login": False}
    return (reply(calls("exec_command", first)), *replies[1:])


async def test_a_slow_snapshot_is_told_once_and_tried_again_when_asked_for(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app_server.core.git.ghost.TIME_LIMIT", 0.2)
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
