"""Approvals: the calls that ask, the effect of each answer, answers that count as none, and rules that avoid a
question.
"""

from pathlib import Path

import pytest

from app_server.client import ApprovalReply, ApprovalRequest, CommandApprovalRequest, PatchApprovalRequest
from app_server_protocol.encoding import Json
from app_server_protocol.v2.items import CommandExecutionThreadItem, ThreadItem
from tests.support.client import Refused
from tests.support.editor import opened
from tests.support.library import MakeLibraryWorld
from tests.support.scripted_model import calls, patches, reply, runs, says, script
from tests.support.thread_client import items, notified, say, start
from tests.support.world import MakeWorld

pytestmark = pytest.mark.scenario

UNTRUSTED = {"approval_policy": "untrusted"}
MAKE = script("echo made > made.txt")
ADD = "*** Begin Patch\n*** Add File: new.txt\n+hello\n*** End Patch"
NO = ["denied", "decline"]
STOP = ["abort", "cancel"]
NONSENSE: list[Json] = [
    {"decision": "maybe"},
    {"decision": "Approved"},
    {"decision": True},
    {"decision": ["approved"]},
    {"decision": {"approved": {}}},
    {"decision": "accept"},
    {"decision": "acceptForSession"},
    {"verdict": "approved"},
    {},
    [],
    ["approved"],
    True,
    1,
    "approved",
]


async def test_commands_that_only_read_do_not_ask(world: MakeWorld) -> None:
    calls = runs("ls", call_id="c1"), runs("bash", "-lc", "cat a.txt | wc -l && ls", call_id="c2")
    async with world(reply(*calls), reply(says("ok")), config=UNTRUSTED, files={"a.txt": "1\n"}) as w:
        turn = await w.client.turn(await w.open())
    assert "exec_approval_request" not in turn.kinds()
    assert [end["exit_code"] for end in turn.of("exec_command_end")] == [0, 0]


@pytest.mark.parametrize("sandbox", ["workspace-write", "danger-full-access"])
async def test_what_destroys_waits_for_the_user_in_the_workspace_too(world: MakeWorld, sandbox: str) -> None:
    config = {"approval_policy": "on-request", "sandbox_mode": sandbox}
    async with world(
        reply(script("rm -rf sub")), reply(says("ok")), config=config, files={"sub/f": "1"}
    ) as w:
        w.client.decide("execCommandApproval", "denied")
        turn = await w.client.turn(await w.open())
        assert (w.workspace / "sub/f").read_text() == "1"
    assert turn.kinds().count("exec_approval_request") == 1


async def test_the_question_says_what_would_run_and_where(world: MakeWorld) -> None:
    async with world(reply(MAKE), reply(says("ok")), config=UNTRUSTED) as w:
        w.client.decide("execCommandApproval", "denied")
        conversation = await w.open()
        await w.client.turn(conversation)
        asked = (await w.client.anywhere("execCommandApproval"))["params"]
        assert asked["conversationId"] == conversation
        assert (asked["callId"], asked["cwd"]) == ("c1", str(w.workspace))
        assert asked["command"] == ["sh", "-c", "echo made > made.txt"]
        (event,) = w.client.events("exec_approval_request")
        assert {
            event[a] == asked[b] for a, b in (("call_id", "callId"), ("command", "command"), ("cwd", "cwd"))
        } == {True}


@pytest.mark.parametrize("word", NO)
async def test_a_no_is_told_to_the_model_and_the_turn_goes_on(world: MakeWorld, word: str) -> None:
    async with world(reply(MAKE), reply(says("as you wish")), config=UNTRUSTED) as w:
        w.client.decide("execCommandApproval", word)
        turn = await w.client.turn(await w.open())
        assert not (w.workspace / "made.txt").exists()
    assert turn.last_message == "as you wish"
    assert [end["exit_code"] for end in turn.of("exec_command_end")] == [-1], "it never ran"
    assert w.model.requests[1].outputs()["c1"]


@pytest.mark.parametrize("word", STOP)
async def test_a_stop_ends_the_turn(world: MakeWorld, word: str) -> None:
    async with world(reply(MAKE), reply(says("next turn")), config=UNTRUSTED) as w:
        w.client.decide("execCommandApproval", word)
        conversation = await w.open()
        turn = await w.client.turn(conversation, until="turn_aborted")
        assert turn.events[-1]["reason"] == "interrupted"
        assert (await w.client.turn(conversation, "go on")).last_message == "next turn"
        assert not (w.workspace / "made.txt").exists()


@pytest.mark.parametrize("answer", NONSENSE, ids=str)
async def test_what_is_not_plainly_a_yes_is_a_no(world: MakeWorld, answer: Json) -> None:
    async with world(reply(MAKE), reply(says("ok")), config=UNTRUSTED) as w:
        w.client.decide("execCommandApproval", lambda request: answer)
        conversation = await w.open()
        turn = await w.client.turn(conversation)
        assert not (w.workspace / "made.txt").exists()
    assert turn.last_message == "ok"


@pytest.mark.parametrize(
    "error",
    [{"code": -32601, "message": "Method not found"}, {"code": "x"}, "no", 1],
    ids=str,
)
async def test_an_error_is_a_no(world: MakeWorld, error: Json) -> None:
    async with world(reply(MAKE), reply(says("ok")), config=UNTRUSTED) as w:
        conversation = await w.open()
        await w.client.say(conversation)
        question = await w.client.expect("execCommandApproval")
        # A result beside an error does not count.
        await w.client.write({"id": question["id"], "error": error, "result": {"decision": "approved"}})
        assert (await w.client.rest_of_turn(conversation)).last_message == "ok"
        assert not (w.workspace / "made.txt").exists()


async def test_the_first_answer_counts_and_answers_to_nothing_are_ignored(world: MakeWorld) -> None:
    async with world(reply(MAKE), reply(says("ok")), config=UNTRUSTED) as w:
        conversation = await w.open()
        await w.client.say(conversation)
        question = await w.client.expect("execCommandApproval")
        for id in (4242, "zz", str(question["id"]), float(question["id"]), -1):
            await w.client.write({"id": id, "result": {"decision": "approved"}})
        await w.client.answer(question, {"decision": "denied"})
        await w.client.answer(question, {"decision": "approved"})
        await w.client.rest_of_turn(conversation)
        assert not (w.workspace / "made.txt").exists()


async def test_consent_for_the_session_covers_that_command_and_no_other(world: MakeWorld) -> None:
    same = ("touch", "made.txt")
    replies = (
        reply(runs(*same, call_id="c1")),
        reply(runs(*same, call_id="c2")),
        reply(runs("touch", "other.txt", call_id="c3")),
        reply(runs(*same, call_id="c4", workdir="sub")),
        reply(says("ok")),
        reply(runs(*same, call_id="c5")),
        reply(says("ok")),
    )
    async with world(*replies, config=UNTRUSTED, files={"sub/x": ""}) as w:
        w.client.decide("execCommandApproval", "approved_for_session", "denied")
        turn = await w.client.turn(await w.open())
        assert [e["call_id"] for e in turn.of("exec_approval_request")] == ["c1", "c3", "c4"]
        ran = [e["call_id"] for e in turn.of("exec_command_end") if e["exit_code"] == 0]
        assert ran == ["c1", "c2"]
        # The approval does not hold in another conversation.
        other = await w.client.turn(await w.open())
        assert [e["call_id"] for e in other.of("exec_approval_request")] == ["c5"]


async def test_two_conversations_may_ask_at_once_and_each_gets_its_own_answer(world: MakeWorld) -> None:
    replies = (
        reply(script("echo 1 > one")),
        reply(script("echo 2 > two")),
        reply(says("ok")),
        reply(says("ok")),
    )
    async with world(*replies, config=UNTRUSTED) as w:
        first, second = await w.open(), await w.open()
        await w.client.say(first)
        one = await w.client.expect("execCommandApproval")
        await w.client.say(second)
        two = await w.client.expect("execCommandApproval")
        assert one["id"] != two["id"]
        assert [one["params"]["conversationId"], two["params"]["conversationId"]] == [first, second]
        await w.client.answer(two, {"decision": "denied"})
        await w.client.rest_of_turn(second, start=0)
        await w.client.answer(one, {"decision": "approved"})
        await w.client.rest_of_turn(first, start=0)
        assert (w.workspace / "one").exists()
        assert not (w.workspace / "two").exists()


async def test_a_question_may_be_answered_by_an_operation(world: MakeWorld) -> None:
    async with world(reply(MAKE), reply(says("ok")), config=UNTRUSTED) as w:
        conversation = await w.open()
        await w.client.say(conversation)
        await w.client.expect("execCommandApproval")
        op = {"type": "exec_approval", "id": "0", "call_id": "c1", "decision": "approved"}
        await w.client.submit(conversation, op)
        await w.client.rest_of_turn(conversation)
        assert (w.workspace / "made.txt").exists()


@pytest.mark.parametrize(("word", "made"), [("approved", True), ("denied", False)])
async def test_a_run_without_the_sandbox_is_a_second_question(
    world: MakeWorld, word: str, made: bool
) -> None:
    config = {"approval_policy": "untrusted", "sandbox_mode": "read-only"}
    async with world(reply(MAKE), reply(says("ok")), config=config) as w:
        w.client.decide("execCommandApproval", "approved", word)
        turn = await w.client.turn(await w.open())
        assert (w.workspace / "made.txt").exists() is made
    asked = [(event["call_id"], event.get("reason")) for event in turn.of("exec_approval_request")]
    assert asked == [("c1", None), ("c1", "command failed; retry without sandbox?")]
    assert len(turn.of("exec_command_begin")) == len(turn.of("exec_command_end")) == 1


@pytest.mark.parametrize(("word", "applied"), [("approved", True), ("denied", False), ("decline", False)])
async def test_a_patch_is_shown_and_applied_only_with_consent(
    world: MakeWorld, word: str, applied: bool
) -> None:
    config = {"approval_policy": "untrusted", "sandbox_mode": "workspace-write"}
    async with world(reply(patches(ADD)), reply(says("ok")), config=config) as w:
        w.client.decide("applyPatchApproval", word)
        await w.client.turn(await w.open())
        assert (w.workspace / "new.txt").exists() is applied
        asked = (await w.client.anywhere("applyPatchApproval"))["params"]
        assert asked["callId"] == "c1"
        assert asked["fileChanges"] == {str(w.workspace / "new.txt"): {"add": {"content": "hello\n"}}}


async def test_a_patch_inside_the_workspace_needs_no_consent_and_its_diff_is_told(world: MakeWorld) -> None:
    config = {"approval_policy": "on-request", "sandbox_mode": "workspace-write"}
    async with world(reply(patches(ADD)), reply(says("ok")), config=config, git=True) as w:
        turn = await w.client.turn(await w.open())
    assert [e["success"] for e in turn.of("patch_apply_end")] == [True]
    assert "+hello" in turn.of("turn_diff")[-1]["unified_diff"]


async def test_a_patch_that_is_stopped_ends_the_turn(world: MakeWorld) -> None:
    async with world(reply(patches(ADD)), config=UNTRUSTED) as w:
        w.client.decide("applyPatchApproval", "abort")
        await w.client.turn(await w.open(), until="turn_aborted")
        assert not (w.workspace / "new.txt").exists()


async def test_a_client_that_leaves_has_consented_to_nothing(world: MakeWorld, tmp_path: Path) -> None:
    async with world(reply(MAKE), config=UNTRUSTED) as w:
        conversation = await w.open()
        await w.client.say(conversation)
        await w.client.expect("execCommandApproval")
        await w.client.leave()
    assert not (tmp_path / "workspace" / "made.txt").exists()


DEFAULT = "../home/rules/default.rules"


def statuses(items: tuple[ThreadItem, ...]) -> list[str]:
    return [str(item.status) for item in items if isinstance(item, CommandExecutionThreadItem)]


class Person:
    """Handler that answers each command question with the method of that name."""

    def __init__(self, answer: str) -> None:
        self._answer = answer
        self.asked: list[CommandApprovalRequest] = []

    def __call__(self, request: ApprovalRequest) -> ApprovalReply:
        assert isinstance(request, CommandApprovalRequest)
        self.asked.append(request)
        reply: ApprovalReply = getattr(request, self._answer)()
        return reply


async def test_an_accepted_rule_saves_the_next_question_in_this_thread_and_in_later_ones(
    library: MakeLibraryWorld,
) -> None:
    commands = ("touch a", "touch a b"), ("touch a c",)
    replies = [
        each
        for turn in commands
        for each in (*(reply(script(command)) for command in turn), reply(says("ok")))
    ]
    person = Person("accept_with_rule")
    async with library(*replies, config=UNTRUSTED, on_approval=person) as w:
        for _ in commands:
            await (await w.server.start_thread()).run("go")
        [question] = person.asked
        assert question.proposed_rule == ("touch", "a")
        assert question.accept_with_rule().result.to_value()["decision"] in (
            each if isinstance(each, str) else each.to_value()
            for each in question.params.available_decisions or ()
        )
        assert {each.name for each in w.workspace.iterdir()} == {"a", "b", "c"}
        assert (w.workspace / DEFAULT).read_text() == (
            'prefix_rule(pattern=["touch", "a"], decision="allow")\n'
        )


async def test_rules_of_the_file_ask_and_forbid(library: MakeLibraryWorld) -> None:
    replies = [reply(script(each, f"c{n}")) for n, each in enumerate(["mkdir d", "ls; cp a b", "touch a"])]
    rules = (
        'prefix_rule(pattern=["mkdir"], decision="prompt", justification="it is full")\n'
        'prefix_rule(pattern=["cp"], decision="forbidden", justification="no copies")\n'
    )
    person = Person("decline")
    async with library(*replies, reply(says("ok")), files={"a": "", DEFAULT: rules}, on_approval=person) as w:
        result = await (await w.server.start_thread(approval_policy="on-request")).run("go")
        assert [question.reason for question in person.asked] == ["a rule requires approval: it is full"]
        assert statuses(result.items) == ["declined", "completed"]
        assert {each.name for each in w.workspace.iterdir()} == {"a"}
        assert "no copies" in str(w.model.requests[2])


async def test_under_never_what_a_rule_asks_about_is_rejected(library: MakeLibraryWorld) -> None:
    rules = 'prefix_rule(pattern=["mkdir"], decision="prompt")'
    person = Person("accept")
    async with library(
        reply(script("mkdir d")), reply(says("ok")), files={DEFAULT: rules}, on_approval=person
    ) as w:
        await (await w.server.start_thread(approval_policy="never")).run("go")
        assert not person.asked
        assert not (w.workspace / "d").exists()


async def test_a_damaged_file_is_told_of_and_allows_nothing(library: MakeLibraryWorld) -> None:
    rules = 'prefix_rule(pattern=["touch"], decision="allow")\nxx('
    person = Person("accept_with_rule")
    async with library(
        *(reply(script("touch a")), reply(says("ok"))),
        config=UNTRUSTED,
        files={DEFAULT: rules},
        on_approval=person,
    ) as w:
        await (await w.server.start_thread()).run("go")
        warnings = [each["message"] for each in notified(w, "warning")]
        assert len(person.asked) == 1
        assert (w.workspace / "a").exists()
        assert "default.rules is damaged" in warnings[0]
        assert "for this thread only" in warnings[-1]


async def test_a_patch_for_the_session_allows_later_changes_of_its_files(library: MakeLibraryWorld) -> None:
    changes = (
        "*** Add File: a.txt\n+one",
        "*** Update File: a.txt\n@@\n-one\n+two",
        "*** Delete File: a.txt\n*** Add File: b.txt\n+three",
    )
    texts = (f"*** Begin Patch\n{change}\n*** End Patch\n" for change in changes)
    replies = (reply(patches(text, f"c{n}")) for n, text in enumerate(texts))
    asked: list[PatchApprovalRequest] = []

    def decide(request: ApprovalRequest) -> ApprovalReply:
        assert isinstance(request, PatchApprovalRequest)
        asked.append(request)
        return request.accept_for_thread() if len(asked) == 1 else request.decline()

    async with library(*replies, reply(says("ok")), config=UNTRUSTED, on_approval=decide) as w:
        await (await w.server.start_thread()).run("go")
        assert [question.params.item_id for question in asked] == ["c0", "c2"], (
            "another file, another question"
        )
        assert (w.workspace / "a.txt").read_text() == "two\n"
        assert [each.name for each in w.workspace.iterdir()] == ["a.txt"]


LONG = "x" * 200_000
FULL_ACCESS: Json = {"approvalPolicy": "on-request", "sandbox": "danger-full-access"}
TOO_LONG = [
    (runs("echo", LONG), ""),
    (script(f"echo made > made.txt; : {LONG}"), ""),
    (
        calls("exec_command", {"cmd": f": {LONG}", "shell": "/bin/sh", "login": False}),
        "[features]\nunified_exec = true\n",
    ),
]


@pytest.mark.parametrize(("call", "tables"), TOO_LONG)
@pytest.mark.parametrize("api", ["v1", "v2", "acp"])
async def test_nobody_is_asked_about_a_command_that_the_system_cannot_start(
    world: MakeWorld, call: Json, tables: str, api: str
) -> None:
    script = (reply(call), reply(says("well")))
    async with world(*script, tables=tables, config=UNTRUSTED, acp=api == "acp") as w:
        if api == "v1":
            played = await w.client.turn(await w.open(approvalPolicy="untrusted"))
            assert [end["exit_code"] for end in played.of("exec_command_end")] == [-1]
        elif api == "v2":
            await say(w.client, await start(w.client, **FULL_ACCESS))
            [item] = items(w, kind="commandExecution")
            assert (item["status"], item["exitCode"]) == ("failed", None)
        else:
            editor, session = await opened(w)
            assert await editor.ends(session) == "end_turn"
        assert not (w.workspace / "made.txt").exists()
    text = w.model.requests[1].outputs()["c1"]
    assert text.startswith("execution error: a word of the command has 200,0")
    assert "bytes, and the system takes at most " in text


async def test_a_command_of_a_client_fails_with_the_same_text(world: MakeWorld) -> None:
    async with world() as w:
        with pytest.raises(Refused, match="a word of the command has 200,000 bytes"):
            await w.client.call("command/exec", {"command": ["echo", LONG]})


async def test_words_that_are_too_long_together_are_named(world: MakeWorld) -> None:
    words = ["x" * 100_000] * 50
    async with world(reply(runs("true", *words)), reply(says("well"))) as w:
        await say(w.client, await start(w.client, approvalPolicy="never", sandbox="danger-full-access"))
    assert "together are longer than the system takes" in w.model.requests[1].outputs()["c1"]
