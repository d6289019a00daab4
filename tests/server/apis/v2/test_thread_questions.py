"""Questions to the client, its answers, and the parsing of settings and input, in the thread API."""

import json

import pytest

from app_server.engine.session.session_commands import AnswerElicitation, ResolveApproval
from app_server.server.apis.v2 import thread_items, thread_settings
from app_server.server.conversations.adapter import OutboundRequest, QuestionKind
from app_server_protocol import policy as engine
from app_server_protocol.encoding import Json
from app_server_protocol.engine.events import TurnKind
from app_server_protocol.engine.item_values import AddFileChange, ReadCommand, UnknownCommand
from app_server_protocol.engine.items import CommandExecution, CommandSource
from app_server_protocol.engine.questions import (
    CommandApprovalQuestion,
    ElicitationQuestion,
    FileGrant,
    PatchApprovalQuestion,
    Question,
    RuleAmendment,
)
from app_server_protocol.event_items import ImageInput, LocalImageInput, TextInput
from app_server_protocol.policy import ElicitationAction, ReviewDecision
from app_server_protocol.rpc_errors import RpcError
from app_server_protocol.v2 import item_parts as wire_input
from app_server_protocol.v2 import settings as wire
from app_server_protocol.values import replace
from tests.server.apis.v2.recorded import NOW, THREAD, TURN, Recording, validator

COMMAND = CommandApprovalQuestion(
    call_id="call-1",
    command=("bash", "-lc", "cat a"),
    cwd="/w",
    reason="I need it",
    parsed=(ReadCommand(cmd="cat a", name="a", path="a"),),
)
PATCH = PatchApprovalQuestion(call_id="call-2", changes={"/w/a": AddFileChange(content="")})
FORM = ElicitationQuestion(
    server="s", id="1", message="Which?", requested_schema={"type": "object", "properties": {"x": {}}}
)


def asked(event: Question, seen: Recording | None = None) -> OutboundRequest | None:
    seen = seen or Recording()
    seen.emit("7", event, turn_id=TURN)
    question = seen.adapter.question(event, TURN, seen.live)
    if question is not None:
        params = json.loads(question.params)
        validator("ServerRequest").validate({"id": 0, "method": question.method, "params": params})
        assert question.kind is QuestionKind.APPROVAL
    return question


def test_may_this_command_run() -> None:
    question = asked(COMMAND)
    assert question is not None
    assert question.method == "item/commandExecution/requestApproval"
    assert json.loads(question.params) == {
        "kind": "command",
        "threadId": THREAD,
        "turnId": TURN,
        "itemId": "call-1",
        "startedAtMs": int(NOW * 1000),
        "environmentId": None,
        "reason": "I need it",
        "command": "bash -lc 'cat a'",
        "cwd": "/w",
        "commandActions": [{"type": "read", "command": "cat a", "name": "a", "path": "/w/a"}],
        "availableDecisions": ["accept", "acceptForSession", "decline", "cancel"],
    }


@pytest.mark.parametrize(
    ("word", "decision"),
    [
        ("accept", ReviewDecision.APPROVED),
        ("acceptForSession", ReviewDecision.APPROVED_FOR_SESSION),
        *((word, ReviewDecision.DENIED) for word in ("decline", "denied")),
        *((word, ReviewDecision.ABORT) for word in ("cancel", "abort")),
    ],
)
def test_what_is_offered_is_taken_and_so_is_no_in_other_words(word: str, decision: ReviewDecision) -> None:
    question = asked(COMMAND)
    assert question is not None
    assert question.is_answer({"decision": word})
    assert question.to_command({"decision": word}) == ResolveApproval("call-1", decision)


def test_a_patch_for_the_session_allows_its_files() -> None:
    question = asked(PATCH)
    assert question is not None
    for_session, once = (question.to_command({"decision": word}) for word in ("acceptForSession", "accept"))
    approved = ReviewDecision.APPROVED_FOR_SESSION
    assert for_session == ResolveApproval(PATCH.call_id, approved, FileGrant(), tool="apply_patch")
    assert once == ResolveApproval(PATCH.call_id, ReviewDecision.APPROVED, tool="apply_patch")


def amendment(*words: Json) -> Json:
    return {"decision": {"acceptWithExecpolicyAmendment": {"execpolicy_amendment": [*words]}}}


def test_a_proposed_rule_is_offered_and_taken_in_the_very_words() -> None:
    question = asked(replace(COMMAND, proposed_rule=("touch", "a")))
    assert question is not None
    params = json.loads(question.params)
    assert params["proposedExecpolicyAmendment"] == ["touch", "a"]
    words = ["accept", "acceptForSession", amendment("touch", "a")["decision"], "decline", "cancel"]
    assert params["availableDecisions"] == words
    for line in ("touch a", "touch", "bash -lc"):  # the engine keeps only its own proposal
        rule = tuple(line.split())
        kept = ResolveApproval("call-1", ReviewDecision.APPROVED, RuleAmendment(rule))
        assert question.to_command(amendment(*rule)) == kept


def test_a_rule_that_was_not_proposed_is_a_no() -> None:
    for event in (COMMAND, PATCH):
        question = asked(event)
        assert question is not None
        command = question.to_command(amendment("touch", "a"))
        assert isinstance(command, ResolveApproval)
        assert (command.decision, command.also) == (ReviewDecision.DENIED, None)


@pytest.mark.parametrize(
    "answer",
    [
        *(None, {}, [], "accept", True, {"decision": True}, {"decision": None}, {"decision": "Accept"}),
        *({"decision": "approved"}, {"decision": "approved_for_session"}, {"decision": "yes"}),
        *({"decision": ["accept"]}, {"decision": {"accept": {}}}, {"result": {"decision": "accept"}}),
        *(amendment(), amendment("a", 1), {"decision": {**amendment("a")["decision"], "more": {}}}),
        {"decision": {"acceptWithExecpolicyAmendment": {"execpolicy_amendment": "touch"}}},
        {"decision": {"applyNetworkPolicyAmendment": {"network_policy_amendment": {"action": "allow"}}}},
    ],
    ids=str,
)
def test_everything_else_is_no_answer_and_counts_as_a_no(answer: Json) -> None:
    question = asked(replace(COMMAND, proposed_rule=("touch", "a")))
    assert question is not None
    assert not question.is_answer(answer)
    assert question.to_command(answer) == ResolveApproval("call-1", ReviewDecision.DENIED)


def test_may_these_files_change() -> None:
    question = asked(PATCH)
    assert question is not None
    assert question.method == "item/fileChange/requestApproval"
    assert json.loads(question.params)["itemId"] == "call-2"
    command = question.to_command({"decision": "abort"})
    assert command == ResolveApproval("call-2", ReviewDecision.ABORT, tool="apply_patch")


def test_a_question_names_the_item_as_the_client_knows_it() -> None:
    seen = Recording()
    earlier = seen.turn("01a1fc2e-4000-7ed0-9b52-64722a96c4dc")
    earlier.turn_started(TurnKind.REGULAR, None)
    item = CommandExecution(id="call-1", command=("bash", "-lc", "cat a"), cwd="/w", parsed=())
    earlier.show(item)
    turn = seen.turn()
    turn.turn_started(TurnKind.REGULAR, None)
    turn.start(item)
    question = asked(COMMAND, seen)
    assert question is not None
    assert (
        json.loads(question.params)["itemId"] == "call-1-2" == seen.params("item/started")[-1]["item"]["id"]
    )
    command = question.to_command({"decision": "accept"})
    assert command == ResolveApproval("call-1", ReviewDecision.APPROVED), "the engine knows it by its own id"


def test_text_for_a_command_that_goes_on() -> None:
    seen = Recording()
    turn = seen.turn("01a1fc2e-4000-7ed0-9b52-64722a96c4dc")
    turn.turn_started(TurnKind.REGULAR, None)
    turn.start(
        CommandExecution(id="call-1", command=("bash",), cwd="/w", parsed=(), source=CommandSource.TERMINAL)
    )
    typed = CommandApprovalQuestion(
        call_id="call-1",
        command=("rm -r 'a'\n",),
        cwd="/w",
        parsed=(UnknownCommand(cmd="rm -r 'a'\n"),),
    )
    question = asked(typed, seen)
    assert question is not None
    params = json.loads(question.params)
    assert (params["kind"], params["command"], params["turnId"]) == ("writeStdin", "rm -r 'a'\n", TURN)


def test_a_server_asks_for_values() -> None:
    question = asked(FORM)
    assert question is not None
    assert json.loads(question.params) == {
        "threadId": THREAD,
        "turnId": TURN,
        "serverName": "s",
        "environmentId": None,
        "mode": "form",
        "message": "Which?",
        "requestedSchema": FORM.requested_schema,
        "_meta": None,
    }
    answers: list[tuple[Json, ElicitationAction, Json]] = [
        ({"action": "accept", "content": {"x": 1}}, ElicitationAction.ACCEPT, {"x": 1}),
        ({"action": "cancel", "content": {"x": 1}}, ElicitationAction.CANCEL, None),
        ({"action": "Accept", "content": {"x": 1}}, ElicitationAction.DECLINE, None),
        (None, ElicitationAction.DECLINE, None),
    ]
    for answer, action, content in answers:
        assert question.to_command(answer) == AnswerElicitation("s", "1", action, content)


def test_a_form_without_fields_is_a_form() -> None:
    question = asked(ElicitationQuestion(server="s", id="1", message="Sure?"))
    assert question is not None
    assert json.loads(question.params)["requestedSchema"] == {"type": "object", "properties": {}}


# --- settings
@pytest.mark.parametrize("policy", engine.AskForApproval)
def test_approval_policies_come_back(policy: engine.AskForApproval) -> None:
    back = thread_settings.approval_policy(thread_settings.shown_approval_policy(policy, None))
    dropped = policy is engine.AskForApproval.ON_FAILURE
    assert back == (engine.AskForApproval.ON_REQUEST if dropped else policy, None)


@pytest.mark.parametrize(
    "policy",
    [
        engine.DangerFullAccess(),
        engine.ReadOnly(),
        engine.WorkspaceWrite(writable_roots=("/a",), network_access=True, exclude_slash_tmp=True),
    ],
)
def test_sandbox_policies_come_back(policy: engine.SandboxPolicy) -> None:
    assert thread_settings.sandbox_policy(thread_settings.shown_sandbox_policy(policy, "/w")) == policy


def test_no_sandbox_gives_more_than_was_asked_for() -> None:
    assert (
        thread_settings.sandbox_policy(wire.ReadOnlySandboxPolicy(network_access=True)) == engine.ReadOnly()
    )
    assert thread_settings.sandbox_policy(wire.ExternalSandboxSandboxPolicy()) == engine.DangerFullAccess()


# --- input
def test_input_comes_back() -> None:
    given = (TextInput(text="hi"), ImageInput(image_url="data:x"), LocalImageInput(path="/x.png"))
    assert thread_items.user_inputs(thread_items.shown_inputs(given)) == given


def test_skills_and_mentions_come_back() -> None:
    given = (
        wire_input.SkillUserInput(name="test", path="/skills/test/SKILL.md"),
        wire_input.MentionUserInput(name="a.py", path="/w/a.py"),
    )
    assert thread_items.shown_inputs(thread_items.user_inputs(given)) == given


@pytest.mark.parametrize(
    "item", [wire_input.AudioUserInput(url="data:x"), wire_input.LocalAudioUserInput(path="/x.wav")]
)
def test_sounds_are_refused(item: wire_input.UserInput) -> None:
    with pytest.raises(RpcError, match="not supported"):
        thread_items.user_inputs([item])
