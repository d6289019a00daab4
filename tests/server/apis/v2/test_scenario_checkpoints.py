"""Back to a message with the files, over the thread API."""

import math
from pathlib import Path

import pytest

from app_server.engine.system_ports import SystemPorts
from app_server.engine.turn.loop import TurnLoop
from app_server.engine.turn.turn_items import TurnInput
from app_server_protocol.encoding import Json
from tests.support.client import Refused
from tests.support.full_disk import FullDisk
from tests.support.scripted_model import Hold, begins_to_say, patches, reply, says, script
from tests.support.thread_client import ended, say, start
from tests.support.world import EXPERIMENTAL, MakeWorld, World

pytestmark = pytest.mark.scenario

FULL = {"sandbox_mode": "danger-full-access", "approval_policy": "never"}


def patch(old: str, new: str) -> str:
    return f"*** Begin Patch\n*** Update File: a\n@@\n-{old}\n+{new}\n*** End Patch"


async def preview(w: World, thread: str, before: str, scope: str = "both", **more: Json) -> Json:
    params = {"threadId": thread, "beforeTurnId": before, "restore": scope, **more}
    return await w.client.call("thread/checkpoint/preview", params)


async def restore(w: World, thread: str, before: str, token: str, scope: str = "both", **more: Json) -> Json:
    params = {"threadId": thread, "beforeTurnId": before, "restore": scope, "token": token, **more}
    return await w.client.call("thread/checkpoint/restore", params)


def shown(w: World, answer: Json) -> dict[str, tuple[str, str]]:
    root = f"{w.workspace}/"
    return {each["path"].removeprefix(root): (each["action"], each["by"]) for each in answer["files"]}


@pytest.mark.parametrize("git", [True, False])
async def test_files_and_conversation_go_back_and_the_files_come_again(world: MakeWorld, git: bool) -> None:
    replies = (
        *(reply(patches(patch("1", "2"))), reply(says("one"))),
        *(reply(script("echo new > n")), reply(says("two"))),
    )
    async with world(*replies, files={"a": "1\n"}, git=git, config=FULL, capabilities=EXPERIMENTAL) as w:
        thread = await start(w.client)
        first, second = [await say(w.client, thread, text) for text in ("first", "second")]
        listed = await w.client.call("thread/checkpoint/list", {"threadId": thread})
        facts = [
            (each["turnId"], each["words"], each["filesChanged"], each["filesCovered"])
            for each in listed["data"]
        ]
        assert facts == [(second, "second", 1, 1), (first, "first", 1, 1)]

        before = await preview(w, thread, first)
        assert before["turns"] == [first, second]
        assert shown(w, before) == {"a": ("restore", "agent"), "n": ("keep", "uncertain")}
        assert "-2\n+1\n" in before["files"][0]["diff"]
        done = await restore(w, thread, first, before["token"], uncertain=True)
        assert shown(w, done) == {"a": ("restore", "agent"), "n": ("delete", "uncertain")}
        assert (w.workspace / "a").read_text() == "1\n"
        assert not (w.workspace / "n").exists()
        read = await w.client.call("thread/read", {"threadId": thread, "includeTurns": True})
        assert read["thread"]["turns"] == []

        undo = done["undoTurnId"]
        again = await preview(w, thread, undo, "files")
        back = await restore(w, thread, undo, again["token"], "files")
        assert ((w.workspace / "a").read_text(), (w.workspace / "n").read_text()) == ("2\n", "new\n")
        listed = await w.client.call("thread/checkpoint/list", {"threadId": thread})
        assert [(each["undoTurnId"], each["complete"]) for each in listed["restores"]] == [
            (back["undoTurnId"], True),
            (undo, True),
        ]
        assert listed["data"] == []


async def test_a_stale_preview_is_refused_and_nothing_is_done(world: MakeWorld) -> None:
    replies = reply(patches(patch("1", "2"))), reply(says("one"))
    async with world(*replies, files={"a": "1\n"}, config=FULL, capabilities=EXPERIMENTAL) as w:
        thread = await start(w.client)
        turn = await say(w.client, thread, "first")
        token = (await preview(w, thread, turn))["token"]
        w.write({"a": "2\nmine\n"})
        with pytest.raises(Refused, match="files changed since the preview") as refused:
            await restore(w, thread, turn, token)
        assert refused.value.code == -32600
        assert (w.workspace / "a").read_text() == "2\nmine\n"
        read = await w.client.call("thread/read", {"threadId": thread, "includeTurns": True})
        assert [each["id"] for each in read["thread"]["turns"]] == [turn]


async def test_the_users_line_is_kept_and_a_merge_takes_the_agents_part_out(world: MakeWorld) -> None:
    text = "".join(f"{number}\n" for number in range(6))
    replies = reply(patches(patch("1", "agent"))), reply(says("one"))
    async with world(*replies, files={"a": text}, config=FULL, capabilities=EXPERIMENTAL) as w:
        thread = await start(w.client)
        turn = await say(w.client, thread, "first")
        place = w.workspace / "a"
        place.write_text(place.read_text() + "mine\n")
        before = await preview(w, thread, turn, "files")
        assert shown(w, before) == {"a": ("conflict", "both")}
        kept = await restore(w, thread, turn, before["token"], "files")
        assert (kept.get("undoTurnId"), place.read_text()) == (
            None,
            text.replace("1\n", "agent\n") + "mine\n",
        )
        await restore(w, thread, turn, before["token"], "files", conflicts="merge")
        assert place.read_text() == text + "mine\n"


async def test_a_restore_is_refused_while_a_turn_runs_there(world: MakeWorld) -> None:
    hold = Hold()
    replies = (
        *(reply(patches(patch("1", "2"))), reply(says("one"))),
        *(reply(begins_to_say(), hold, says("two")),),
    )
    async with world(*replies, files={"a": "1\n"}, config=FULL, capabilities=EXPERIMENTAL) as w:
        thread, other = await start(w.client), await start(w.client)
        turn = await say(w.client, thread, "first")
        token = (await preview(w, thread, turn))["token"]
        begun = {"threadId": other, "input": [{"type": "text", "text": "go"}]}
        await w.client.call("turn/start", begun)
        await hold.reached.wait()
        with pytest.raises(Refused, match=f"thread {other} works in"):
            await restore(w, thread, turn, token)
        assert (w.workspace / "a").read_text() == "2\n"
        hold.release()
        await w.client.expect("turn/completed")
        await restore(w, thread, turn, token, "files")
        assert (w.workspace / "a").read_text() == "1\n"


@pytest.mark.parametrize("method", ["thread/revert", "thread/checkpoint/restore"])
async def test_a_thread_whose_lines_cannot_be_stored_does_not_go_back_and_stays_open(
    world: MakeWorld, method: str
) -> None:
    replies = [reply(patches(patch("1", "2"))), *(reply(says(text)) for text in "abc")]
    full = FullDisk(math.inf)
    machine = SystemPorts(disk=full.disk())
    async with world(
        *replies, files={"a": "1\n"}, config=FULL, capabilities=EXPERIMENTAL, machine=machine
    ) as w:
        thread = await start(w.client)
        first = await say(w.client, thread, "first")
        back = {"threadId": thread, "beforeTurnId": first}
        if method == "thread/checkpoint/restore":
            before = await preview(w, thread, first)
            back |= {"restore": "both", "token": before["token"]}
        full.room = 0
        await say(w.client, thread, "second")
        with pytest.raises(Refused, match=r"cannot go back.*no space left on device"):
            await w.client.call(method, back)
        assert (w.workspace / "a").read_text() == "2\n"
        full.room = math.inf
        await say(w.client, thread, "third")
        assert w.model.requests[-1].texts() == ["first", "second", "third"]
        if method == "thread/checkpoint/restore":
            back["token"] = (await preview(w, thread, first))["token"]
        await w.client.call(method, back)
        await say(w.client, thread, "else")
        assert w.model.requests[-1].texts() == ["else"]


async def test_a_thread_that_cannot_store_that_it_goes_back_is_loaded_as_it_was(world: MakeWorld) -> None:
    """No line waits, so that is known only when the thread has ended and is loaded again."""
    full = FullDisk(math.inf)
    replies = [reply(says(text)) for text in "abcde"]
    async with world(*replies, capabilities=EXPERIMENTAL, machine=SystemPorts(disk=full.disk())) as w:
        thread = await start(w.client)
        first = await say(w.client, thread, "first")
        back = {"threadId": thread, "beforeTurnId": first}
        full.room = 0
        with pytest.raises(Refused, match=r"cannot go back.*no space left on device"):
            await w.client.call("thread/revert", back)
        read = await w.client.call("thread/read", {"threadId": thread})
        assert read["thread"]["status"] == {"type": "idle"}
        await say(w.client, thread, "second")
        assert w.model.requests[-1].texts() == ["first", "second"]
        full.room = math.inf
        await say(w.client, thread, "third")
        assert w.model.requests[-1].texts() == ["first", "second", "third"]
        await w.client.call("thread/revert", back)
        await say(w.client, thread, "else")
        assert w.model.requests[-1].texts() == ["else"]


async def test_ids_and_scopes_that_mean_nothing_are_refused(world: MakeWorld) -> None:
    replies = reply(patches(patch("1", "2"))), reply(says("one"))
    async with world(*replies, files={"a": "1\n"}, config=FULL, capabilities=EXPERIMENTAL) as w:
        thread = await start(w.client)
        turn = await say(w.client, thread, "first")
        with pytest.raises(Refused, match="no turn or restore of this thread"):
            await preview(w, thread, "turn-7")
        done = await restore(w, thread, turn, (await preview(w, thread, turn, "files"))["token"], "files")
        with pytest.raises(Refused, match="names a restore"):
            await preview(w, thread, done["undoTurnId"], "both")


async def test_checkpoints_go_with_their_thread(world: MakeWorld) -> None:
    replies = reply(patches(patch("1", "2"))), reply(says("one"))
    async with world(*replies, files={"a": "1\n"}, config=FULL, capabilities=EXPERIMENTAL) as w:
        thread = await start(w.client)
        await say(w.client, thread, "first")
        kept = Path(w.home) / "checkpoints" / thread
        assert kept.is_dir()
        await w.client.call("thread/delete", {"threadId": thread})
        assert not kept.exists()


async def test_only_clients_of_the_experimental_api_go_back(world: MakeWorld) -> None:
    async with world() as w:
        thread = await start(w.client)
        with pytest.raises(Refused, match="experimentalApi"):
            await w.client.call("thread/checkpoint/list", {"threadId": thread})


async def test_a_turn_that_fails_by_an_error_of_the_server_can_be_taken_back(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = TurnLoop.run

    async def broken(self: TurnLoop, opening: TurnInput) -> str | None:
        await run(self, opening)
        raise RuntimeError("broken")

    monkeypatch.setattr(TurnLoop, "run", broken)
    replies = (reply(patches(patch("1", "2"))), reply(says("one")))
    async with world(*replies, files={"a": "1\n"}, config=FULL, capabilities=EXPERIMENTAL) as w:
        thread = await start(w.client)
        begun = await w.client.call(
            "turn/start", {"threadId": thread, "input": [{"type": "text", "text": "first"}]}
        )
        ended = await w.client.expect("turn/completed")
        assert ended["params"]["turn"]["status"] == "failed"
        turn = begun["turn"]["id"]
        before = await preview(w, thread, turn, "files")
        await restore(w, thread, turn, before["token"], "files")
        assert (w.workspace / "a").read_text() == "1\n"


async def test_what_a_reviewer_changes_is_recorded(world: MakeWorld) -> None:
    replies = reply(script("echo reviewed > a")), reply(says("nothing found"))
    async with world(*replies, files={"a": "1\n"}, config=FULL, capabilities=EXPERIMENTAL) as w:
        thread = await start(w.client)
        target = {"type": "custom", "instructions": "look"}
        answer = await w.client.call("review/start", {"threadId": thread, "target": target})
        turn = answer["turn"]["id"]
        await ended(w.client, turn)
        assert (w.workspace / "a").read_text() == "reviewed\n"
        seen = await preview(w, thread, turn, "files", uncertain=True)
        assert shown(w, seen) == {"a": ("restore", "uncertain")}
        await restore(w, thread, turn, seen["token"], "files", uncertain=True)
        assert (w.workspace / "a").read_text() == "1\n"
