"""What docs/protocol.md says of cases that clients meet seldom."""

from tests.support.client import text_item
from tests.support.scripted_model import patches, reply, says, script
from tests.support.world import MakeWorld

MADE = "*** Begin Patch\n*** Add File: made.txt\n+hello\n*** End Patch"


async def test_operations_are_numbered_anew_after_a_resume_and_by_interrupts(world: MakeWorld) -> None:
    async with world(reply(says("one")), reply(says("two")), reply(says("three"))) as w:
        conversation = await w.open()
        await w.client.turn(conversation, "a")
        assert await w.client.interrupt(conversation) == {"abortReason": "interrupted"}
        await w.client.turn(conversation, "b")
        resumed = await w.client.call("resumeConversation", {"conversationId": conversation})
        await w.client.listen(resumed["conversationId"])
        await w.client.turn(conversation, "c")
    begun = [each for each in w.client.received() if each.get("method") == "codex/event/task_started"]
    assert [each["params"]["id"] for each in begun] == ["0", "2", "0"]


async def test_resuming_what_is_open_ends_its_turn_its_listeners_and_its_question(world: MakeWorld) -> None:
    asking = {"approval_policy": "untrusted", "sandbox_mode": "workspace-write"}
    async with world(reply(script("echo > made")), reply(says("next")), config=asking) as w:
        conversation = await w.open()
        await w.client.say(conversation)
        question = await w.client.expect("execCommandApproval")
        await w.client.call("resumeConversation", {"conversationId": conversation})
        assert w.client.events("turn_aborted") == [{"type": "turn_aborted", "reason": "interrupted"}]
        await w.client.answer(question, {"decision": "approved"})
        await w.client.call("sendUserMessage", {"conversationId": conversation, "items": [text_item("x")]})
        assert len(w.client.events("task_started")) == 1, "nobody listens any more"
        await w.client.listen(conversation)
        await w.client.expect("task_complete")
        assert not (w.workspace / "made").exists()


async def test_without_a_listener_events_and_questions_wait(world: MakeWorld) -> None:
    async with world(
        reply(script("echo > made")), reply(says("x")), config={"approval_policy": "untrusted"}
    ) as w:
        opened = await w.client.call("newConversation", {"cwd": str(w.workspace)})
        conversation = opened["conversationId"]
        await w.client.call("sendUserMessage", {"conversationId": conversation, "items": [text_item("x")]})
        await w.client.listen(conversation)
        await w.client.answer(await w.client.expect("execCommandApproval"), {"decision": "approved"})
        await w.client.expect("task_complete")
    received = [each.get("method", "answer") for each in w.client.received()]
    asked = [each for each in w.client.received() if each.get("method") == "addConversationListener"]
    assert asked == []
    assert received.index("codex/event/task_started") > received.index("answer")
    assert w.client.events("session_configured") == []


async def test_no_items_begin_no_turn(world: MakeWorld) -> None:
    async with world() as w:
        conversation = await w.open()
        await w.client.call("sendUserMessage", {"conversationId": conversation, "items": []})
        await w.client.expect("task_complete")
        assert w.client.events("task_complete") == [{"type": "task_complete", "last_agent_message": None}]
        assert w.client.events("task_started") == []
    assert w.model.requests == []


async def test_a_folder_that_does_not_exist_fails_commands_only(world: MakeWorld) -> None:
    async with world(reply(script("pwd")), reply(says("gone"))) as w:
        conversation = await w.client.open(cwd="/no/such/folder")
        turn = await w.client.turn(conversation, "where?")
    assert turn.last_message == "gone"
    assert [each["exit_code"] for each in w.client.events("exec_command_end")] == [-1]
    assert "No such file or directory" in w.model.requests[1].outputs()["c1"]


async def test_applying_a_patch_prints_between_its_begin_and_its_end(world: MakeWorld) -> None:
    async with world(
        reply(patches(MADE)), reply(says("done")), config={"sandbox_mode": "workspace-write"}
    ) as w:
        conversation = await w.open()
        turn = await w.client.turn(conversation)
    kinds = [kind for kind in turn.kinds() if "patch_apply" in kind or "output_delta" in kind]
    assert kinds == ["patch_apply_begin", "exec_command_output_delta", "patch_apply_end"]
