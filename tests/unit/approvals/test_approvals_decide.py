"""What is judged by the words and by the programs that they stand for; and what may be typed."""

import pytest

from app_server.core.approvals.consent import EVERYTHING, Rights
from app_server.core.approvals.decide import (
    CommandRequest,
    InputVerdict,
    Verdict,
    decide,
    decide_input,
    policy_rejection,
)
from app_server.core.approvals.prefix_rules import PrefixRules
from app_server.core.approvals.rules_text import PrefixRule, RuleDecision, rule_for
from protocol.policy import (
    AskForApproval,
    DangerFullAccess,
    QuestionKinds,
    ReadOnly,
    SandboxPolicy,
    WorkspaceWrite,
)

UNTRUSTED, ON_FAILURE = AskForApproval.UNTRUSTED, AskForApproval.ON_FAILURE
ON_REQUEST, NEVER = AskForApproval.ON_REQUEST, AskForApproval.NEVER
TYPE, ASK, REFUSE = InputVerdict.TYPE, InputVerdict.ASK, InputVerdict.REFUSE
ROOT = Rights(roots=frozenset({"/ws"}))


@pytest.mark.parametrize(
    ("argv", "looked_up"),
    [
        (("ls", "-l"), {"ls"}),
        (("/usr/bin/ls",), {"/usr/bin/ls"}),
        (("bash", "-lc", "cd src && ls | wc -l; /bin/cat f"), {"bash", "ls", "wc", "/bin/cat"}),
        (("/bin/sh", "-c", "pwd"), {"/bin/sh", "pwd"}),
        (("cd", "src"), {"cd"}),
    ],
)
def test_every_program_of_a_reading_command_must_be_what_its_name_says(
    argv: tuple[str, ...], looked_up: set[str]
) -> None:
    seen: set[str] = set()
    request = CommandRequest(argv, "/ws")

    def verdict(sandbox: SandboxPolicy, suspect: str | None) -> Verdict:
        def trusts(program: str) -> bool:
            seen.add(program)
            return program != suspect

        return decide(request, UNTRUSTED, sandbox, trusts=trusts)

    for sandbox in (ReadOnly(), DangerFullAccess()):
        assert verdict(sandbox, None) is Verdict.RUN
        assert {verdict(sandbox, suspect) for suspect in looked_up} == {Verdict.ASK}
    assert seen == looked_up


@pytest.mark.parametrize(
    ("approval", "terminal", "policy", "verdict"),
    [
        (NEVER, ROOT, ROOT, TYPE),
        (NEVER, EVERYTHING, EVERYTHING, TYPE),
        (NEVER, EVERYTHING, ROOT, REFUSE),
        (NEVER, ROOT, Rights(), REFUSE),
        (ON_FAILURE, ROOT, ROOT, TYPE),
        (ON_FAILURE, EVERYTHING, ROOT, ASK),
        (ON_REQUEST, ROOT, ROOT, TYPE),
        (ON_REQUEST, ROOT, EVERYTHING, TYPE),
        (ON_REQUEST, EVERYTHING, ROOT, ASK),
        (ON_REQUEST, EVERYTHING, EVERYTHING, TYPE),
        (UNTRUSTED, Rights(), EVERYTHING, ASK),
        (UNTRUSTED, EVERYTHING, EVERYTHING, ASK),
    ],
)
def test_typing_is_judged_by_the_policy_of_the_turn(
    approval: AskForApproval, terminal: Rights, policy: Rights, verdict: InputVerdict
) -> None:
    assert decide_input("ls\n", approval, terminal, policy) is verdict


def test_a_policy_without_questions_about_the_sandbox_refuses_them() -> None:
    silent, asking = QuestionKinds(sandbox_approval=False), QuestionKinds()
    assert decide_input("ls\n", ON_REQUEST, EVERYTHING, ROOT, silent) is REFUSE
    assert decide_input("ls\n", ON_REQUEST, EVERYTHING, ROOT, asking) is ASK
    assert decide_input("ls\n", ON_REQUEST, ROOT, ROOT, silent) is TYPE


@pytest.mark.parametrize("terminal", [ROOT, EVERYTHING])
def test_typing_what_destroys_is_asked_about_in_every_sandbox(terminal: Rights) -> None:
    silent = QuestionKinds(sandbox_approval=False)
    assert decide_input("rm -rf build\n", ON_REQUEST, terminal, EVERYTHING) is ASK
    assert decide_input("rm -rf build\n", ON_REQUEST, terminal, EVERYTHING, silent) is REFUSE
    assert decide_input("rm -rf build\n", NEVER, terminal, EVERYTHING) is TYPE


@pytest.mark.parametrize("sandbox", [ReadOnly(), WorkspaceWrite(), DangerFullAccess()])
def test_what_destroys_is_asked_about_in_every_sandbox(sandbox: SandboxPolicy) -> None:
    for line in ("rm -rf sub", "ls && rm -fr sub g", "find . -delete", "git clean -fdx", "truncate -s 0 f"):
        request = CommandRequest(("bash", "-lc", line), "/ws")
        verdicts = {
            policy: decide(request, policy, sandbox, trusts=lambda _: True) for policy in AskForApproval
        }
        assert verdicts == {
            UNTRUSTED: Verdict.ASK,
            ON_REQUEST: Verdict.ASK,
            ON_FAILURE: Verdict.RUN,
            NEVER: Verdict.RUN,
        }


def test_nobody_is_asked_to_leave_a_sandbox_that_is_none() -> None:
    more = CommandRequest(("make",), "/ws", escalated=True)
    assert decide(more, ON_REQUEST, DangerFullAccess(), trusts=lambda _: True) is Verdict.RUN
    assert decide(more, ON_REQUEST, WorkspaceWrite(), trusts=lambda _: True) is Verdict.ASK
    silent = QuestionKinds(sandbox_approval=False)
    assert policy_rejection(more, ON_REQUEST, DangerFullAccess(), silent) is None
    assert policy_rejection(more, NEVER, DangerFullAccess()) is not None


@pytest.mark.parametrize(
    "text",
    [
        "true\rrm -rf d\r",
        "rx\x7fm -rf d\n",
        "rx\bm -rf d\n",
        "ls\x15rm -rf d\n",
        "rm ls\x17-rf d\r",
        "r\x00m -rf d\n",
    ],
)
def test_typed_text_is_judged_as_the_line_that_a_terminal_makes_of_it(text: str) -> None:
    assert decide_input(text, ON_REQUEST, EVERYTHING, EVERYTHING) is ASK


@pytest.mark.parametrize(
    "text", ["ls\r", "\x03", "\x1b[A\r", "rm -rf d\x15ls\n", "rm x\x17\x17ls\n", ":wq\r", ""]
)
def test_other_typed_text_is_not_asked_about(text: str) -> None:
    assert decide_input(text, ON_REQUEST, EVERYTHING, EVERYTHING) is TYPE


def ls(restriction: PrefixRule | None = None, *, escalated: bool = False) -> CommandRequest:
    return CommandRequest(("ls", "a b"), "/ws", escalated=escalated, restriction=restriction)


def test_a_rule_may_reject_a_command_by_itself_or_with_the_policy() -> None:
    forbidden = PrefixRule((("ls",),), RuleDecision.FORBIDDEN)
    because = PrefixRule((("ls",),), RuleDecision.FORBIDDEN, "use find")
    prompt = PrefixRule((("ls",),), RuleDecision.PROMPT)
    for approval in AskForApproval:
        assert policy_rejection(ls(forbidden), approval, ReadOnly()) == (
            "`ls 'a b'` rejected: a rule of the user forbids it"
        )
        assert policy_rejection(ls(because), approval, ReadOnly()) == "`ls 'a b'` rejected: use find"
        assert policy_rejection(ls(), approval, ReadOnly()) is None
    assert policy_rejection(ls(prompt), ON_REQUEST, ReadOnly()) is None
    assert policy_rejection(ls(prompt), NEVER, ReadOnly()) == (
        "`ls 'a b'` rejected: a rule requires approval, but the approval policy is Never"
    )
    kinds = QuestionKinds(rules=False)
    assert policy_rejection(ls(prompt), ON_REQUEST, ReadOnly(), QuestionKinds()) is None
    assert policy_rejection(ls(prompt), ON_REQUEST, ReadOnly(), kinds) == (
        "`ls 'a b'` rejected: a rule requires approval, and the user is not asked about rules"
    )


def test_questions_that_are_switched_off_are_rejected() -> None:
    off, on = QuestionKinds(sandbox_approval=False), QuestionKinds()
    rm = CommandRequest(("rm", "-rf", "a"), "/ws", escalated=False)
    assert policy_rejection(ls(escalated=True), ON_REQUEST, ReadOnly(), off) == (
        "the user is not asked about the sandbox; reject command — do not ask for escalated permissions"
    )
    assert policy_rejection(ls(escalated=True), ON_REQUEST, ReadOnly(), on) is None
    assert policy_rejection(rm, ON_REQUEST, DangerFullAccess(), off) == (
        "the command destroys, and the user is not asked about that; reject command"
    )
    assert policy_rejection(rm, ON_REQUEST, DangerFullAccess(), on) is None
    assert policy_rejection(rm, ON_REQUEST, ReadOnly(), off) is not None
    assert policy_rejection(ls(), ON_REQUEST, DangerFullAccess(), off) is None
    for approval in (NEVER, ON_FAILURE, UNTRUSTED):
        rejected = policy_rejection(ls(escalated=True), approval, ReadOnly())
        assert rejected is not None
        assert "should not ask for escalated permissions" in rejected


def test_an_allowed_command_that_destroys_runs_without_a_sandbox() -> None:
    rm = CommandRequest(("bash", "-lc", "rm -rf build"), "/ws", escalated=False)
    trusts: list[str] = []

    def trust(program: str) -> bool:
        trusts.append(program)
        return True

    allowed = PrefixRules([rule_for(("rm", "-rf", "build"))]).allows
    assert decide(rm, ON_REQUEST, DangerFullAccess(), trusts=trust, allowed=allowed) is Verdict.RUN
    assert trusts
    assert decide(rm, UNTRUSTED, DangerFullAccess(), trusts=trust, allowed=allowed) is Verdict.RUN
    assert decide(rm, ON_REQUEST, DangerFullAccess(), trusts=trust) is Verdict.ASK
    assert decide(rm, ON_REQUEST, DangerFullAccess(), trusts=lambda _: False, allowed=allowed) is Verdict.ASK
