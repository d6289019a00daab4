"""One thread with a client of each API: the notifications that each client gets of the others' actions."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import anyio
import pytest

from app_server.engine.session.facade import SessionHandle
from app_server.server.apis.acp.prompt_turns import PendingPrompt, PromptTurns
from app_server_protocol.encoding import Json
from tests.support.client import Client, Refused
from tests.support.scripted_model import Hold, Reply, begins_to_say, calls, reply, says, script, word
from tests.support.thread_client import ended, say, start, turn
from tests.support.waiting import until
from tests.support.world import MakeWorld, World

pytestmark = pytest.mark.scenario

INITIALIZE: Json = {
    "protocolVersion": 1,
    "clientCapabilities": {},
    "clientInfo": {"name": "tests", "version": "1.0"},
}


@dataclass
class Three:
    world: World
    thread: str
    threads: Client
    old: Client
    editor: Client

    def chunks(self, kind: str = "agent_message_chunk") -> list[str]:
        found = (m["params"]["update"] for m in self.editor.received() if m.get("method") == "session/update")
        return [each["content"]["text"] for each in found if each["sessionUpdate"] == kind]

    def updates(self, kind: str) -> list[Json]:
        found = (m["params"]["update"] for m in self.editor.received() if m.get("method") == "session/update")
        return [each for each in found if each["sessionUpdate"] == kind]

    def calls(self) -> list[str]:
        return [each["toolCallId"] for each in self.updates("tool_call")]

    async def old_joins(self) -> Json:
        resumed = await self.old.call("resumeConversation", {"conversationId": self.thread})
        await self.old.listen(self.thread)
        return resumed

    async def editor_joins(self) -> Json:
        opening: Json = {"sessionId": self.thread, "cwd": str(self.world.workspace), "mcpServers": []}
        return await self.editor.call("session/load", opening)

    async def prompt(self, text: str) -> int | str:
        block: Json = {"type": "text", "text": text}
        return await self.editor.send("session/prompt", {"sessionId": self.thread, "prompt": [block]})


@asynccontextmanager
async def three(world: MakeWorld, *replies: Reply, **params: Json) -> AsyncIterator[Three]:
    """Yield a thread that was begun over the thread API and has one turn. The other clients have not joined it."""
    async with world(reply(says("first")), *replies) as w, w.another() as old, w.another(acp=True) as editor:
        await editor.call("initialize", INITIALIZE)
        thread = await start(w.client, **params)
        await say(w.client, thread, "zero")
        yield Three(w, thread, w.client, old, editor)


async def test_all_join_in_the_middle_of_a_message_and_have_its_whole_text(world: MakeWorld) -> None:
    hold = Hold()
    message = (begins_to_say(), word("one "), hold, word("two"), says("one two"))
    async with three(world, reply(*message)) as t:
        begun = await turn(t.threads, t.thread, "go")
        await t.threads.expect("item/agentMessage/delta")
        resumed = await t.old_joins()
        assert [m["message"] for m in resumed["initialMessages"] if m["type"] == "user_message"] == [
            "zero",
            "go",
        ]
        await t.editor_joins()
        assert t.chunks("user_message_chunk") == ["zero", "go"]
        assert t.chunks() == ["first"]
        hold.release()
        await ended(t.threads, begun)
        await t.old.expect("task_complete")
        await until(lambda: "".join(t.chunks()) == "firstone two")
        assert len(t.old.events("task_started")) == 1
        assert "".join(each["delta"] for each in t.old.events("agent_message_delta")) == "one two"
        assert [each["message"] for each in t.old.events("agent_message")] == ["one two"]


async def test_a_turn_of_one_is_told_to_all(world: MakeWorld) -> None:
    async with three(world, reply(says("a")), reply(says("b")), reply(says("c"))) as t:
        await t.old_joins()
        await t.editor_joins()
        await say(t.threads, t.thread, "from threads")
        await t.old.expect("task_complete")
        await t.old.turn(t.thread, "from the old one")
        await t.threads.expect("turn/completed")
        answer = await t.editor.answer_to(await t.prompt("from the editor"))
        assert answer["result"]["stopReason"] == "end_turn"
        await t.old.expect("task_complete")
        await t.threads.expect("turn/completed")
        assert t.chunks("user_message_chunk") == ["zero", "from threads", "from the old one"]
        assert t.chunks() == ["first", "a", "b", "c"]
        assert [each["message"] for each in t.old.events("user_message")] == [
            "from threads",
            "from the old one",
            "from the editor",
        ]
        shown = await t.threads.call("thread/read", {"threadId": t.thread, "includeTurns": True})
        said = [turn["items"][0]["content"][0]["text"] for turn in shown["thread"]["turns"]]
        assert said == ["zero", "from threads", "from the old one", "from the editor"]


@pytest.mark.parametrize("answers", ["threads", "old", "editor"])
async def test_a_question_is_put_to_all_in_their_words_and_the_first_answer_counts(
    world: MakeWorld, answers: str
) -> None:
    replies = (reply(script("touch ran")), reply(says("done")))
    async with three(world, *replies, approvalPolicy="untrusted") as t:
        await t.old_joins()
        await t.editor_joins()
        begun = await turn(t.threads, t.thread, "go")

        async def asked(client: Client, method: str) -> Json:
            return await client.expect(lambda m: m.get("method") == method and "id" in m)

        ours = await asked(t.threads, "item/commandExecution/requestApproval")
        theirs = await asked(t.old, "execCommandApproval")
        editors = await asked(t.editor, "session/request_permission")
        if answers == "threads":
            await t.threads.answer(ours, {"decision": "accept"})
        elif answers == "old":
            await t.old.answer(theirs, {"decision": "approved"})
        else:
            await t.editor.answer(editors, {"outcome": {"outcome": "selected", "optionId": "allow_once"}})
        assert (await ended(t.threads, begun))["status"] == "completed"
        await t.old.expect("task_complete")
        assert (t.world.workspace / "ran").exists()
        resolved = [m["params"] for m in t.threads.received() if m.get("method") == "serverRequest/resolved"]
        assert [each["requestId"] for each in resolved] == [ours["id"]]
        told_old = [each["message"] for each in t.old.events("background_event")]
        assert ("answered by another client" in told_old) is (answers != "old")
        if answers != "editor":
            taken = await t.editor.expect("$/cancel_request")
            assert taken["params"]["requestId"] == editors["id"]
            await t.editor.write({"id": editors["id"], "error": {"code": -32800, "message": "cancelled"}})


async def test_words_during_a_turn_of_another_join_it_over_every_api(world: MakeWorld) -> None:
    hold = Hold()
    replies = (reply(begins_to_say(), word("a"), hold, says("a")), reply(says("b")))
    async with three(world, *replies) as t:
        await t.old_joins()
        await t.editor_joins()
        begun = await turn(t.threads, t.thread, "go")
        await hold.reached.wait()
        item: Json = {"type": "text", "data": {"text": "from the old one"}}
        await t.old.call("sendUserMessage", {"conversationId": t.thread, "items": [item]})
        prompt = await t.prompt("from the editor")
        await anyio.wait_all_tasks_blocked()
        hold.release()
        assert (await ended(t.threads, begun))["status"] == "completed"
        assert (await t.editor.answer_to(prompt))["result"]["stopReason"] == "end_turn"
        await t.old.expect("task_complete")
        assert t.world.model.requests[-1].texts()[-3:] == ["go", "from the old one", "from the editor"]
        for method in ("turn/started", "turn/completed"):  # the first is of the turn of `zero`
            assert len([m for m in t.threads.received() if m.get("method") == method]) == 2
        assert len(t.old.events("task_complete")) == 1


async def test_a_question_of_the_model_is_put_to_who_can_show_it(world: MakeWorld) -> None:
    asks: Json = {
        "id": "colour",
        "header": "Colour",
        "question": "Which?",
        "options": [{"label": "Red", "description": "a"}, {"label": "Blue", "description": "b"}],
    }
    call = calls("request_user_input", {"questions": [asks]}, "q")
    async with three(world, reply(call), reply(says("done"))) as t:
        async with t.world.another(capabilities={"experimentalApi": True}) as planner:
            await t.old_joins()
            await t.editor_joins()
            await planner.call("thread/resume", {"threadId": t.thread})
            mode: Json = {"mode": "plan", "settings": {"model": "scripted"}}
            await turn(planner, t.thread, "plan", collaborationMode=mode)
            asked = await planner.expect("item/tool/requestUserInput")
            await planner.answer(asked, {"answers": {"colour": {"answers": ["Red"]}}})
            await planner.expect("turn/completed")
            await t.old.expect("task_complete")
        assert "Red" in str(t.world.model.requests[-1].body)
        assert [m for m in t.old.received() if "method" in m and "id" in m] == []


async def test_settings_of_one_show_in_the_editor(world: MakeWorld) -> None:
    async with three(world, reply(says("a"))) as t:
        await t.editor_joins()
        change: Json = {"approvalPolicy": "on-request", "sandboxPolicy": {"type": "readOnly"}}
        await say(t.threads, t.thread, input=[], **change)
        await until(
            lambda: [each["currentModeId"] for each in t.updates("current_mode_update")] == ["read-only"]
        )


async def test_closing_a_session_leaves_the_others_in_it(world: MakeWorld) -> None:
    hold = Hold()
    async with three(world, reply(begins_to_say(), word("a"), hold, says("ab")), reply(says("c"))) as t:
        await t.editor_joins()
        begun = await turn(t.threads, t.thread, "go")
        await t.threads.expect("item/agentMessage/delta")
        await t.editor.call("session/close", {"sessionId": t.thread})
        hold.release()
        assert (await ended(t.threads, begun))["status"] == "completed"
        refused = await t.editor.answer_to(await t.prompt("more"))
        assert "error" in refused
        await t.editor_joins()
        answer = await t.editor.answer_to(await t.prompt("more"))
        assert answer["result"]["stopReason"] == "end_turn"
        await t.threads.expect("turn/completed")


async def test_who_archives_ends_it_for_all(world: MakeWorld) -> None:
    async with three(world) as t:
        await t.old_joins()
        await t.editor_joins()
        await t.threads.call("thread/archive", {"threadId": t.thread})
        await t.old.expect("shutdown_complete")
        refused = await t.editor.answer_to(await t.prompt("more"))
        assert "error" in refused


async def test_who_takes_a_thread_back_is_told_to_all_and_old_clients_hear_on(world: MakeWorld) -> None:
    async with three(world, reply(says("a")), reply(says("b"))) as t, t.world.another() as late:
        await t.old_joins()
        await t.editor_joins()
        await late.call("resumeConversation", {"conversationId": t.thread})  # it listens afterwards
        on_reverted = await say(t.threads, t.thread, "wrong")
        await t.old.expect("task_complete")
        await t.threads.call("thread/revert", {"threadId": t.thread, "beforeTurnId": on_reverted})
        await t.threads.expect("thread/reverted")
        assert "was taken back" in (await t.old.expect("background_event"))["params"]["msg"]["message"]
        assert not t.old.events("shutdown_complete")
        assert "error" in await t.editor.answer_to(await t.prompt("more"))
        shown = len(t.chunks("user_message_chunk"))
        await t.editor_joins()
        assert t.chunks("user_message_chunk")[shown:] == ["zero"]
        await say(t.threads, t.thread, "right")
        await late.listen(t.thread)
        for client in (t.old, late):
            await until(lambda client=client: len(client.events("task_complete")) == 2)  # type: ignore[misc]
            assert [each["message"] for each in client.events("user_message")] == ["wrong", "right"]
            told = [each["message"] for each in client.events("background_event")]
            assert sum("was taken back" in each for each in told) == 1
        begun = [m["params"]["id"] for m in t.old.received() if m.get("method") == "codex/event/task_started"]
        assert begun == ["1", "3"]  # 2 closed the session before
        await until(lambda: t.chunks()[-1] == "b")


@pytest.mark.parametrize("other", ["old", "editor"])
async def test_a_thread_is_not_taken_back_while_a_turn_runs_that_others_follow(
    world: MakeWorld, other: str
) -> None:
    hold = Hold()
    async with three(world, reply(begins_to_say(), word("a"), hold, says("ab"))) as t:
        if other == "old":
            await t.old_joins()
        await t.editor_joins()
        if other == "old":
            await t.editor.call("session/close", {"sessionId": t.thread})
        begun = await turn(t.threads, t.thread, "go")
        await t.threads.expect("item/agentMessage/delta")
        read = await t.threads.call("thread/read", {"threadId": t.thread, "includeTurns": True})
        first = read["thread"]["turns"][0]["id"]
        with pytest.raises(Refused, match="turn in progress"):
            await t.threads.call("thread/revert", {"threadId": t.thread, "beforeTurnId": first})
        hold.release()
        assert (await ended(t.threads, begun))["status"] == "completed"


async def test_who_joins_over_the_old_api_is_told_what_a_question_is_about_before_it_is_asked(
    world: MakeWorld,
) -> None:
    replies = (reply(script("touch ran")), reply(says("done")))
    async with three(world, *replies, approvalPolicy="untrusted") as t:
        begun = await turn(t.threads, t.thread, "go")
        await t.threads.expect("item/commandExecution/requestApproval")
        await t.editor_joins()
        await t.old_joins()
        asked = await t.old.expect(lambda m: m.get("method") == "execCommandApproval")
        told = [each["call_id"] for each in t.old.events("exec_approval_request")]
        assert told == [asked["params"]["callId"]]
        await t.old.answer(asked, {"decision": "approved"})
        assert (await ended(t.threads, begun))["status"] == "completed"


async def test_what_the_old_api_did_before_somebody_joins_is_stored_with_its_ids(world: MakeWorld) -> None:
    async with world(reply(says("first"))) as w, w.another() as old:
        assert w.in_process is not None
        w.in_process.conversations.outlasts_clients = True
        thread = (await old.call("newConversation", {}))["conversationId"]
        await old.listen(thread)
        await old.turn(thread, "zero")
        said = [each["item"]["AgentMessage"]["id"] for each in old.events("item_started")[-1:]]
        resumed = await w.client.call("thread/resume", {"threadId": thread})
        assert [each["id"] for each in resumed["thread"]["turns"][0]["items"][1:]] == said


async def test_a_call_id_that_the_model_uses_again_is_numbered_alike_over_every_api(world: MakeWorld) -> None:
    def again() -> Reply:
        return reply(calls("shell", {"command": ["sh", "-c", "true"]}, call_id="c"))

    hold = Hold()
    waits = reply(calls("shell", {"command": ["sh", "-c", "cat go"]}, call_id="c"))
    replies = (again(), reply(says("a")), waits, reply(hold, says("b")))
    async with world(*replies) as w, w.another() as old, w.another(acp=True) as editor:
        await editor.call("initialize", INITIALIZE)
        opened: Json = await editor.call("session/new", {"cwd": str(w.workspace), "mcpServers": []})
        t = Three(w, opened["sessionId"], w.client, old, editor)
        os.mkfifo(w.workspace / "go")
        await editor.answer_to(await t.prompt("one"))
        await t.prompt("two")
        await until(lambda: t.calls() == ["c", "c-2"])
        resumed = await t.threads.call("thread/resume", {"threadId": t.thread})
        await t.editor_joins()
        begun = await t.threads.expect("item/started")
        (w.workspace / "go").write_text("")
        done = await t.threads.expect("item/completed")
        hold.release()
        await t.threads.expect("turn/completed")
        items = [each for turn in resumed["thread"]["turns"] for each in turn["items"]]
        assert [each["id"] for each in items if each["type"] == "commandExecution"] == ["c", "c-2"]
        assert [each["params"]["item"]["id"] for each in (begun, done)] == ["c-2", "c-2"]
        await until(lambda: t.calls() == ["c", "c-2", "c", "c-2"])
        ended_as = [each["status"] for each in t.updates("tool_call_update") if each["toolCallId"] == "c-2"]
        assert ended_as[-1] == "completed"
        read = await t.threads.call("thread/read", {"threadId": t.thread, "includeTurns": True})
        items = [each for turn in read["thread"]["turns"] for each in turn["items"]]
        assert [each["id"] for each in items if each["type"] == "commandExecution"] == ["c", "c-2"]


async def test_a_prompt_waits_for_a_review_that_takes_the_place_of_a_compaction(world: MakeWorld) -> None:
    hold = Hold()
    async with three(
        world, reply(hold, says("a summary")), reply(says("looked at")), reply(says("said"))
    ) as t:
        await t.editor_joins()
        await t.threads.call("thread/compact/start", {"threadId": t.thread})
        await until(lambda: len(t.world.model.requests) == 2)
        prompt = await t.prompt("behind both")
        target: Json = {"type": "custom", "instructions": "look"}
        await t.threads.call("review/start", {"threadId": t.thread, "target": target})
        answer = await t.editor.answer_to(prompt)
        assert answer["result"]["stopReason"] == "end_turn"
        assert t.chunks()[-1] == "said"
        hold.release()


async def test_an_undo_that_another_clients_turn_overtakes_is_answered(
    world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The turn was queued, and had not begun, when the command looked for one."""

    async def sees_no_turn(turns: PromptTurns, ticket: PendingPrompt) -> bool:
        return True

    hold = Hold()
    async with three(world, reply(begins_to_say(), hold, says("story"))) as t:
        await t.editor_joins()
        begun = await turn(t.threads, t.thread, "go")
        await hold.reached.wait()
        with monkeypatch.context() as seen:
            seen.setattr(PromptTurns, "idle", sees_no_turn)
            seen.setattr(SessionHandle, "running", False)
            answer = await t.editor.answer_to(await t.prompt("/undo"))
        assert answer["result"]["stopReason"] == "end_turn"
        assert "Nothing was undone: a turn runs." in "".join(t.chunks())
        hold.release()
        await ended(t.threads, begun)
