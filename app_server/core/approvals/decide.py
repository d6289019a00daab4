"""Whether a command runs, waits for the user, or is refused. Pure.

The order of the rules is the policy: what is known to only read runs under every policy, then each policy speaks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import assert_never

from app_server.core.approvals.consent import Rights
from app_server.core.shell.dangerous_commands import is_dangerous
from app_server.core.shell.safe_commands import is_known_safe
from protocol.policy import AskForApproval, DangerFullAccess, SandboxPolicy
from protocol.records import dataclass

POLICY_NAMES = {
    AskForApproval.UNTRUSTED: "UnlessTrusted",
    AskForApproval.ON_FAILURE: "OnFailure",
    AskForApproval.ON_REQUEST: "OnRequest",
    AskForApproval.NEVER: "Never",
}
"""As the reference spells them in what it tells the model."""


class Verdict(Enum):
    RUN = "run"
    ASK = "ask"


class InputVerdict(Enum):
    TYPE = "type"
    ASK = "ask"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class CommandRequest:
    """A command that the model wants to run, as far as the decision goes."""

    argv: Sequence[str]
    cwd: str
    escalated: bool = False
    """The model asks to run outside of the sandbox."""


def refusal(request: CommandRequest, approval: AskForApproval) -> str | None:
    """What the model is told where the policy leaves nothing to decide; None: go on."""
    if request.escalated and approval is not AskForApproval.ON_REQUEST:
        name = POLICY_NAMES[approval]
        return (
            f"approval policy is {name}; reject command — you should not ask for escalated permissions "
            f"if the approval policy is {name}"
        )
    return None


def decide(
    request: CommandRequest,
    approval: AskForApproval,
    sandbox: SandboxPolicy,
    *,
    trusts: Callable[[str], bool],
    git_is_plain: Callable[[], bool] | None = None,
) -> Verdict:
    """RUN means: in the sandbox that the policy names, without asking.

    `trusts` says whether a program's name stands for the program of that name. `git_is_plain` is asked only where the
    answer depends on the repository of the working directory; without it, git is never known to only read.
    """
    unconfined = isinstance(sandbox, DangerFullAccess)
    match approval:
        case AskForApproval.NEVER | AskForApproval.ON_FAILURE:
            return Verdict.RUN
        case AskForApproval.ON_REQUEST:
            if request.escalated:
                return Verdict.ASK
            return Verdict.ASK if unconfined and is_dangerous(request.argv) else Verdict.RUN
        case AskForApproval.UNTRUSTED:
            # Without a sandbox a repository could be changed between the look at it and git's own.
            plain = None if unconfined else git_is_plain
            safe = is_known_safe(request.argv, trusts=trusts, git_is_plain=plain)
            return Verdict.RUN if safe else Verdict.ASK
        case _:
            assert_never(approval)


def decide_input(text: str, approval: AskForApproval, terminal: Rights, policy: Rights) -> InputVerdict:
    """Whether `text` may be typed into a terminal that has the rights `terminal`, where the turn's policy gives
    `policy`.

    It is judged as a command is. What reads it need not be a shell, so nothing is known to only read.
    """
    wider = not terminal.within(policy)
    match approval:
        case AskForApproval.NEVER:
            return InputVerdict.REFUSE if wider else InputVerdict.TYPE
        case AskForApproval.ON_FAILURE:
            return InputVerdict.ASK if wider else InputVerdict.TYPE
        case AskForApproval.ON_REQUEST:
            destroys = not terminal.confined and is_dangerous(("bash", "-c", text))
            return InputVerdict.ASK if wider or destroys else InputVerdict.TYPE
        case AskForApproval.UNTRUSTED:
            return InputVerdict.ASK
        case _:
            assert_never(approval)


def may_ask_after_denial(approval: AskForApproval) -> bool:
    """Whether a command that the sandbox stopped may be offered to the user for a run without it."""
    return approval in (AskForApproval.ON_FAILURE, AskForApproval.UNTRUSTED)
