"""Whether a command runs, needs approval, or is rejected. Pure.

A command that is known to only read runs under every policy; each policy decides about the others.
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
"""As codex 0.58 spells them in texts for the model."""


class Verdict(Enum):
    RUN = "run"
    ASK = "ask"


class InputVerdict(Enum):
    TYPE = "type"
    ASK = "ask"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class CommandRequest:
    """The facts about a command that the decision depends on."""

    argv: Sequence[str]
    cwd: str
    escalated: bool = False
    """The model asks to run outside of the sandbox."""


def policy_rejection(request: CommandRequest, approval: AskForApproval) -> str | None:
    """The text for the model if the policy rejects the command outright; otherwise None."""
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
    """RUN means: in the sandbox of the policy, without approval.

    `trusts` checks that a program's name resolves to a file that nobody could have planted. `git_is_plain` is called
    only if the decision depends on the repository of the working directory; without it, no git command counts as
    reading only.
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
            # Without a sandbox, another command could change the repository between our check and git's own.
            plain = None if unconfined else git_is_plain
            safe = is_known_safe(request.argv, trusts=trusts, git_is_plain=plain)
            return Verdict.RUN if safe else Verdict.ASK
        case _:
            assert_never(approval)


def decide_input(text: str, approval: AskForApproval, terminal: Rights, policy: Rights) -> InputVerdict:
    """Whether `text` may be typed into a terminal with the rights `terminal`, under a policy that grants `policy`.

    The rules are those of a command. The reader need not be a shell, so no input counts as reading only.
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
    """Whether the user may be asked to run a command without the sandbox after the sandbox denied it."""
    return approval in (AskForApproval.ON_FAILURE, AskForApproval.UNTRUSTED)
