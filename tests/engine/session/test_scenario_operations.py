"""Operations that have no method of their own: compaction, review, undo, the user's shell, and questions."""

import json
from pathlib import Path

import pytest

from app_server.engine.storage.disk import HISTORY, home_lock
from app_server_protocol.encoding import Json
from tests.support.client import Refused
from tests.support.scripted_model import Hold, Reply, failure, patches, reply, says, script
from tests.support.world import MakeWorld, worlds_in

pytestmark = pytest.mark.scenario

REVIEW = {"type": "review", "review_request": {"prompt": "look at it", "user_facing_hint": "the change"}}
FOUND = {
    "findings": [
        {
            "title": "A bug",
            "body": "It is wrong.",
            "confidence_score": 0.9,
            "priority": 1,
            "code_location": {"absolute_file_path": "/a.py", "line_range": {"start": 1, "end": 2}},
        }
    ],
    "overall_correctness": "patch is incorrect",
    "overall_explanation": "One bug.",
    "overall_confidence_score": 0.8,
}


def of_kind(lines: list[Json], kind: str) -> list[Json]:
    return [line["payload"] for line in lines if line["type"] == kind]


async def test_a_history_that_is_too_long_is_compacted_by_itself(world: MakeWorld) -> None:
    replies = (
        reply(says("long answer"), input=600),
        reply(says("SUMMARY"), input=50),
        reply(says("after"), input=60),
    )
    config = {"model_context_window": 10_000, "model_auto_compact_token_limit": 500}
    async with world(*replies, config=config) as w:
        turn = await w.client.turn(await w.open(), "one")
    assert turn.last_message == "after"
    last = str(w.model.requests[2].input)
    assert "SUMMARY" in last
    assert "long answer" not in last
    assert "one" in w.model.requests[2].texts(), "the user's words are kept"


async def test_an_automatic_compaction_that_fails_does_not_end_the_turn(world: MakeWorld) -> None:
    broken = failure(400, {"error": {"message": "no"}})
    replies = (reply(script("echo hi"), input=600), broken, reply(says("after"), input=60))
    async with world(*replies, config={"model_auto_compact_token_limit": 500}) as w:
        turn = await w.client.turn(await w.open(), "one")
        (path,) = w.rollouts()
        lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert (len(turn.of("error")), turn.last_message) == (1, "after")
    assert "hi" in w.model.requests[2].outputs()["c1"], "nothing was left out"
    assert of_kind(lines, "compacted") == []


async def test_a_second_summary_takes_the_place_of_the_first(world: MakeWorld) -> None:
    """This holds also if the conversation was resumed in between."""
    replies = reply(says("long answer")), reply(says("SUMMARY ONE")), reply(says("after"))
    async with world(*replies) as w:
        conversation = await w.open()
        await w.client.turn(conversation, "one")
        await w.client.operate(conversation, {"type": "compact"})
        await w.client.turn(conversation, "two")
    async with world(reply(says("SUMMARY TWO")), reply(says("end"))) as w:
        await w.client.resume(conversationId=conversation)
        await w.client.operate(conversation, {"type": "compact"})
        await w.client.turn(conversation, "three")
    assert w.model.requests[0].texts()[:3] == ["one", "SUMMARY ONE", "two"]
    assert w.model.requests[1].texts() == ["one", "two", "SUMMARY TWO", "three"]


async def test_a_compaction_that_fails_leaves_the_history_as_it_was(world: MakeWorld) -> None:
    broken = failure(400, {"error": {"message": "no"}})
    async with world(reply(says("answer")), broken, reply(says("after"))) as w:
        conversation = await w.open()
        await w.client.turn(conversation, "one")
        turn = await w.client.operate(conversation, {"type": "compact"})
        assert turn.of("error")
        await w.client.turn(conversation, "two")
    assert w.model.requests[2].texts() == ["one", "two"]
    assert w.model.requests[2].texts("assistant") == ["answer"]


async def test_words_during_a_compaction_begin_a_turn_of_their_own(world: MakeWorld) -> None:
    hold = Hold()
    async with world(reply(says("answer")), reply(hold, says("SUMMARY")), reply(says("after"))) as w:
        conversation = await w.open()
        await w.client.turn(conversation, "one")
        await w.client.submit(conversation, {"type": "compact"})
        await hold.reached.wait()
        await w.client.say(conversation, "meanwhile")
        hold.release()
        await w.client.expect("task_complete")
        assert (await w.client.rest_of_turn(conversation)).last_message == "after"
    assert w.model.requests[2].texts()[-1] == "meanwhile"


async def test_a_review_brings_findings_back(world: MakeWorld) -> None:
    async with world(reply(says(json.dumps(FOUND))), reply(says("I know"))) as w:
        conversation = await w.open()
        turn = await w.client.operate(conversation, REVIEW)
        assert [e["user_facing_hint"] for e in turn.of("entered_review_mode")] == ["the change"]
        (left,) = turn.of("exited_review_mode")
        assert left["review_output"]["overall_explanation"] == "One bug."
        assert left["review_output"]["findings"][0]["title"] == "A bug"
        assert "agent_message" not in turn.kinds(), "the reviewer's JSON is not for reading"
        await w.client.turn(conversation, "what did you find?")
    assert w.model.requests[0].texts()[-1] == "look at it"
    assert "A bug" in str(w.model.requests[1].input)


async def test_a_review_that_is_interrupted_is_left(world: MakeWorld) -> None:
    hold = Hold()
    async with world(reply(hold), reply(says("ok"))) as w:
        conversation = await w.open()
        await w.client.submit(conversation, REVIEW)
        await hold.reached.wait()
        await w.client.interrupt(conversation)
        await w.client.expect("turn_aborted")
        assert [e.get("review_output") for e in w.client.events("exited_review_mode")] == [None]
        await w.client.turn(conversation)


@pytest.mark.parametrize("ends", ["in an error", "interrupted", "after a retry"])
async def test_undo_takes_back_a_turn_whose_reply_broke_off(world: MakeWorld, ends: str) -> None:
    change = reply(script("echo changed > a.txt")).events
    hold = Hold()
    broken = Reply((*change[:2], hold)) if ends == "interrupted" else Reply(change[:2], cut=True)
    after = [reply(says("ok"))] if ends == "after a retry" else []
    provider = {"stream_max_retries": len(after)}
    async with world(broken, *after, files={"a.txt": "one\n"}, git=True, provider=provider) as w:
        conversation = await w.open()
        await w.client.say(conversation)
        await w.client.expect("exec_command_end")
        if ends == "interrupted":
            await hold.reached.wait()
            await w.client.interrupt(conversation)
            await w.client.expect("turn_aborted")
        else:
            await w.client.expect("task_complete")
        assert (w.workspace / "a.txt").read_text() == "changed\n"
        turn = await w.client.operate(conversation, {"type": "undo"})
        assert [e["success"] for e in turn.of("undo_completed")] == [True]
        assert (w.workspace / "a.txt").read_text() == "one\n"


async def test_without_a_repository_patches_are_undone_too(unversioned: Path) -> None:
    async with worlds_in(unversioned)(
        reply(patches("*** Begin Patch\n*** Add File: a\n+a\n*** End Patch")), reply(says("ok"))
    ) as w:
        conversation = await w.open()
        await w.client.turn(conversation)
        assert (w.workspace / "a").exists()
        turn = await w.client.operate(conversation, {"type": "undo"})
        assert [e["success"] for e in turn.of("undo_completed")] == [True]
        assert not (w.workspace / "a").exists()
        turn = await w.client.operate(conversation, {"type": "undo"})
        assert [e["message"] for e in turn.of("undo_completed")] == [
            "Nothing to undo: no change of files by the agent is recorded."
        ]


async def test_the_users_own_command_runs_without_asking_and_the_model_does_not_learn_of_it(
    world: MakeWorld,
) -> None:
    config = {"sandbox_mode": "workspace-write", "approval_policy": "untrusted"}
    async with world(reply(says("ok")), config=config) as w:
        conversation = await w.open()
        op = {"type": "run_user_shell_command", "command": "echo mine > mine.txt; echo done; exit 4"}
        turn = await w.client.operate(conversation, op)
        assert (w.workspace / "mine.txt").read_text() == "mine\n"
        await w.client.turn(conversation, "hi")
    assert "exec_approval_request" not in turn.kinds()
    (end,) = turn.of("exec_command_end")
    assert (end["exit_code"], end["stdout"]) == (4, "done\n")
    assert turn.of("exec_command_begin")[0]["is_user_shell_command"] is True
    assert w.model.requests[0].texts() == ["hi"]


async def test_the_users_own_command_is_offered_to_run_without_the_sandbox_that_stopped_it(
    world: MakeWorld,
) -> None:
    config = {"sandbox_mode": "read-only", "approval_policy": "untrusted"}
    async with world(config=config) as w:
        w.client.decide("execCommandApproval", "denied", "approved")
        conversation = await w.open()
        op = {"type": "run_user_shell_command", "command": "echo mine > mine.txt"}
        refused = await w.client.operate(conversation, op)
        assert not (w.workspace / "mine.txt").exists()
        allowed = await w.client.operate(conversation, op)
        assert (w.workspace / "mine.txt").read_text() == "mine\n"
        override = {"type": "override_turn_context", "approval_policy": "never"}
        await w.client.submit(conversation, override)
        never = await w.client.operate(conversation, op)
    for turn, asked in ((refused, True), (allowed, True), (never, False)):
        reasons = [event["reason"] for event in turn.of("exec_approval_request")]
        assert reasons == ["command failed; retry without sandbox?"] * asked
    assert [turn.of("exec_command_end")[0]["exit_code"] == 0 for turn in (refused, allowed, never)] == [
        False,
        True,
        False,
    ]


async def test_lines_of_the_message_history_are_kept_and_found(world: MakeWorld) -> None:
    async with world(reply(says("ok"))) as w:
        conversation = await w.open()
        await w.client.turn(conversation)
        for text in ("first", "second"):
            await w.client.submit(conversation, {"type": "add_to_history", "text": text})
        configured: Json = {"historyEntryCount": 0}
        while configured["historyEntryCount"] < 2:  # the file tells when they are stored
            await w.client.call("resumeConversation", {"conversationId": conversation})
            configured = (await w.client.expect("sessionConfigured"))["params"]
        await w.client.listen(conversation)
        op = {"type": "get_history_entry_request", "log_id": configured["historyLogId"]}
        texts = []
        for offset in (0, 1, 2):
            await w.client.submit(conversation, {**op, "offset": offset})
            answer = (await w.client.expect("get_history_entry_response"))["params"]["msg"]
            texts.append(answer["entry"]["text"] if "entry" in answer else None)
    assert texts[2] is None
    assert set(texts[:2]) == {"first", "second"}


async def test_messages_for_the_history_are_kept_though_the_conversation_ends(world: MakeWorld) -> None:
    texts = [f"message {n}" for n in range(5)]
    async with world() as w:
        conversation = await w.open()
        with home_lock(w.home, HISTORY, seconds=1):  # another server appends
            for text in texts:
                await w.client.submit(conversation, {"type": "add_to_history", "text": text})
            await w.client.submit(conversation, {"type": "shutdown"})
            await w.client.expect("shutdown_complete")
    lines = (w.home / "history.jsonl").read_text().splitlines()
    assert sorted(json.loads(line)["text"] for line in lines) == texts


async def test_custom_prompts_are_listed(world: MakeWorld) -> None:
    async with world() as w:
        w.write({"prompts/hello.md": "---\ndescription: greets\n---\nSay hello to $1."}, under=w.home)
        await w.client.submit(await w.open(), {"type": "list_custom_prompts"})
        answer = (await w.client.expect("list_custom_prompts_response"))["params"]["msg"]
    assert [prompt["name"] for prompt in answer["custom_prompts"]] == ["hello"]


async def test_a_conversation_that_is_shut_down_is_gone(world: MakeWorld) -> None:
    async with world() as w:
        conversation = await w.open()
        await w.client.submit(conversation, {"type": "shutdown"})
        await w.client.expect("shutdown_complete")
        with pytest.raises(Refused, match=r"conversation not found|has ended"):
            await w.client.submit(conversation, {"type": "compact"})


async def test_an_operation_that_nobody_waits_for_changes_nothing(world: MakeWorld) -> None:
    async with world(reply(says("ok"))) as w:
        conversation = await w.open()
        ops: list[Json] = [
            {"type": "exec_approval", "id": "0", "call_id": "nobody", "decision": "approved"},
            {"type": "patch_approval", "id": "0", "decision": "approved"},
            {"type": "resolve_elicitation", "server_name": "x", "request_id": "1", "decision": "accept"},
            {"type": "interrupt"},
        ]
        for op in ops:
            await w.client.submit(conversation, op)
        assert (await w.client.turn(conversation)).last_message == "ok"
