"""The decision whether a command runs, needs approval, or is rejected. Pure.

A command that is known to only read runs under every policy, unless a rule of the user restricts it. Each policy
decides about the others. A rule that allows a command makes questions about it unnecessary, and grants nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import assert_never

from msgspec import Struct

from app_server.engine.approvals.consent import Rights
from app_server.engine.approvals.rules_text import PrefixRule, RuleDecision
from app_server.engine.approvals.shell import dangerous_commands, safe_commands
from app_server.engine.approvals.shell.quote import join
from app_server.engine.approvals.shell.shell_script import as_typed
from app_server_protocol.policy import AskForApproval, DangerFullAccess, QuestionKinds, SandboxPolicy

Judge = Callable[..., bool]


POLICY_NAMES = {
    AskForApproval.UNTRUSTED: "UnlessTrusted",
    AskForApproval.ON_FAILURE: "OnFailure",
    AskForApproval.ON_REQUEST: "OnRequest",
    AskForApproval.NEVER: "Never",
}
"""Names of the approval policies in texts for the model, as codex 0.58 spells them."""


class InputVerdict(Enum):
    TYPE = "type"
    ASK = "ask"
    REFUSE = "refuse"


class CommandRequest(Struct, frozen=True):
    """The facts about a command on which the decision depends."""

    argv: Sequence[str]
    escalated: bool = False
    """Whether the model asks to run it outside of the sandbox."""
    restriction: PrefixRule | None = None
    """Rule of the user that asks about the command or forbids it. None if there is no such rule."""


def policy_rejection(
    request: CommandRequest,
    approval: AskForApproval,
    sandbox: SandboxPolicy,
    kinds: QuestionKinds | None = None,
) -> str | None:
    """Return the text for the model if the policy or a rule rejects the command outright; otherwise None.

    `kinds` are the kinds of questions that may be asked; None if all kinds may be asked.
    """
    if (refused := _rule_rejection(request, approval, kinds)) is not None:
        return refused
    if request.escalated and approval is not AskForApproval.ON_REQUEST:
        name = POLICY_NAMES[approval]
        return (
            f"approval policy is {name}; reject command — you should not ask for escalated permissions "
            f"if the approval policy is {name}"
        )
    if kinds is not None and not kinds.sandbox_approval:
        if leaves_sandbox(request, sandbox):
            return "the user is not asked about the sandbox; reject command — do not ask for escalated permissions"
        if dangerous_commands.is_dangerous(request.argv):
            return "the command destroys, and the user is not asked about that; reject command"
    return None


def _rule_rejection(
    request: CommandRequest, approval: AskForApproval, kinds: QuestionKinds | None
) -> str | None:
    rule = request.restriction
    if rule is None:
        return None
    shown, reason = join(request.argv), rule.justification or "a rule of the user forbids it"
    if rule.decision is RuleDecision.FORBIDDEN:
        return f"`{shown}` rejected: {reason}"
    if approval is AskForApproval.NEVER:
        return f"`{shown}` rejected: a rule requires approval, but the approval policy is {POLICY_NAMES[approval]}"
    if kinds is not None and not kinds.rules:
        return f"`{shown}` rejected: a rule requires approval, and the user is not asked about rules"
    return None


def must_ask(
    request: CommandRequest,
    approval: AskForApproval,
    sandbox: SandboxPolicy,
    *,
    trusts: Callable[[str], bool],
    git_is_plain: Callable[[], bool] | None = None,
    allowed: Callable[[Sequence[str]], bool] = lambda words: False,
) -> bool:
    """Return whether a command needs approval. If not, it runs in the sandbox of the policy. `allowed` returns whether
    a rule allows a command.

    `trusts` checks that a program's name resolves to a file that no command and no repository could have put there.
    `git_is_plain` is called only if the decision depends on the repository of the working directory; without it, no git
    command counts as reading only.
    """
    if request.restriction is not None:
        return True
    match approval:
        case AskForApproval.NEVER | AskForApproval.ON_FAILURE:
            return False
        case AskForApproval.ON_REQUEST:
            if leaves_sandbox(request, sandbox):
                return True
            # A sandbox does not protect the user's own work in its roots from the command.
            if not dangerous_commands.is_dangerous(request.argv):
                return False
            return not safe_commands.is_known_safe(request.argv, trusts=trusts, allowed=allowed)
        case AskForApproval.UNTRUSTED:
            # Without a sandbox, another command could change the repository between this check and git's own.
            plain = None if isinstance(sandbox, DangerFullAccess) else git_is_plain
            return not safe_commands.is_known_safe(
                request.argv, trusts=trusts, git_is_plain=plain, allowed=allowed
            )
        case _:
            assert_never(approval)


def leaves_sandbox(request: CommandRequest, sandbox: SandboxPolicy) -> bool:
    """Return whether the model asks for more rights than the policy grants: under full access there is no sandbox."""
    return request.escalated and not isinstance(sandbox, DangerFullAccess)


def decide_input(
    text: str,
    approval: AskForApproval,
    terminal: Rights,
    policy: Rights,
    kinds: QuestionKinds | None = None,
) -> InputVerdict:
    """Return whether `text` may be typed into a terminal with the rights `terminal`, under a policy that grants
    `policy`.

    The rules are those of a command. The reader need not be a shell, so no input counts as reading only.
    """
    wider = not terminal.within(policy)
    match approval:
        case AskForApproval.NEVER:
            return InputVerdict.REFUSE if wider else InputVerdict.TYPE
        case AskForApproval.ON_FAILURE:
            return InputVerdict.ASK if wider else InputVerdict.TYPE
        case AskForApproval.ON_REQUEST:
            destroys = dangerous_commands.is_dangerous(("bash", "-c", as_typed(text)))
            ask = InputVerdict.ASK if kinds is None or kinds.sandbox_approval else InputVerdict.REFUSE
            return ask if wider or destroys else InputVerdict.TYPE
        case AskForApproval.UNTRUSTED:
            return InputVerdict.ASK
        case _:
            assert_never(approval)


def may_ask_after_denial(approval: AskForApproval) -> bool:
    """Return whether the user may be asked to run a command without the sandbox after the sandbox denied it."""
    return approval in (AskForApproval.ON_FAILURE, AskForApproval.UNTRUSTED)
