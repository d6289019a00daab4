"""What is judged by the words and by the programs that they stand for; and what may be typed."""

from __future__ import annotations

import pytest

from app_server.core.approvals.consent import EVERYTHING, Rights
from app_server.core.approvals.decide import CommandRequest, InputVerdict, Verdict, decide, decide_input
from protocol.policy import AskForApproval, DangerFullAccess, ReadOnly, SandboxPolicy

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


def test_what_destroys_is_asked_about_where_no_sandbox_holds_it() -> None:
    assert decide_input("rm -rf build\n", ON_REQUEST, EVERYTHING, EVERYTHING) is ASK
    assert decide_input("rm -rf build\n", ON_REQUEST, ROOT, EVERYTHING) is TYPE
