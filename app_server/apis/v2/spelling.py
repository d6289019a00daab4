"""Settings and states in the words of the thread API, and back. Pure.

What the engine cannot do is read as the nearest thing that gives the agent no more than was asked for; answers and
notifications show what is in force.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Final, TypeVar, assert_never

from app_server.conversations.status import Activity, ConversationStatus
from protocol import policy as engine
from protocol.v2 import policy as wire
from protocol.v2.thread import (
    ActiveThreadStatus,
    IdleThreadStatus,
    NotLoadedThreadStatus,
    SystemErrorThreadStatus,
    ThreadActiveFlag,
    ThreadStatus,
)

_APPROVAL: Final = {
    wire.ApprovalMode.UNTRUSTED: engine.AskForApproval.UNTRUSTED,
    wire.ApprovalMode.ON_REQUEST: engine.AskForApproval.ON_REQUEST,
    wire.ApprovalMode.NEVER: engine.AskForApproval.NEVER,
}
_APPROVAL_MODES: Final = {
    **{theirs: ours for ours, theirs in _APPROVAL.items()},
    engine.AskForApproval.ON_FAILURE: wire.ApprovalMode.ON_REQUEST,
}


def approval_policy(policy: wire.AskForApproval) -> tuple[engine.AskForApproval, engine.QuestionKinds | None]:
    """The policy, and the kinds of questions that reach the user if not all do."""
    if isinstance(policy, wire.GranularAskForApproval):
        return engine.AskForApproval.ON_REQUEST, engine.QuestionKinds(**dict(policy.granular))
    return _APPROVAL[policy], None


def shown_approval_policy(
    policy: engine.AskForApproval, kinds: engine.QuestionKinds | None
) -> wire.AskForApproval:
    if kinds is not None:
        return wire.GranularAskForApproval(granular=wire.GranularApproval(**asdict(kinds)))
    return _APPROVAL_MODES[policy]


def sandbox_policy(policy: wire.SandboxPolicy) -> engine.SandboxPolicy:
    """Read-only with network is read-only without. An external sandbox is none of ours."""
    match policy:
        case wire.DangerFullAccessSandboxPolicy() | wire.ExternalSandboxSandboxPolicy():
            return engine.DangerFullAccess()
        case wire.ReadOnlySandboxPolicy():
            return engine.ReadOnly()
        case wire.WorkspaceWriteSandboxPolicy():
            return _copied(policy, engine.WorkspaceWrite)
        case _:
            assert_never(policy)


def shown_sandbox_policy(policy: engine.SandboxPolicy) -> wire.SandboxPolicy:
    match policy:
        case engine.DangerFullAccess():
            return wire.DangerFullAccessSandboxPolicy()
        case engine.ReadOnly():
            return wire.ReadOnlySandboxPolicy()
        case engine.WorkspaceWrite():
            return _copied(policy, wire.WorkspaceWriteSandboxPolicy)
        case _:
            assert_never(policy)


Workspace = TypeVar("Workspace", engine.WorkspaceWrite, wire.WorkspaceWriteSandboxPolicy)


def _copied(
    policy: engine.WorkspaceWrite | wire.WorkspaceWriteSandboxPolicy, kind: type[Workspace]
) -> Workspace:
    """The same settings, which both have under the same names."""
    return kind(
        writable_roots=policy.writable_roots,
        network_access=policy.network_access,
        exclude_tmpdir_env_var=policy.exclude_tmpdir_env_var,
        exclude_slash_tmp=policy.exclude_slash_tmp,
    )


def thread_status(status: ConversationStatus) -> ThreadStatus:
    match status.activity:
        case Activity.IDLE:
            return IdleThreadStatus()
        case Activity.ACTIVE:
            flags = [ThreadActiveFlag.WAITING_ON_APPROVAL] if status.waiting_on_approval else []
            if status.waiting_on_input:
                flags.append(ThreadActiveFlag.WAITING_ON_USER_INPUT)
            return ActiveThreadStatus(active_flags=tuple(flags))
        case Activity.SYSTEM_ERROR:
            return SystemErrorThreadStatus()
        case Activity.NOT_LOADED:
            return NotLoadedThreadStatus()
        case _:
            assert_never(status.activity)
