"""The opening messages of a conversation, and the environment context: first in full, then only the changes. Pure.

The XML-like form is that of codex 0.58, so that conversations can move between both.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct
from msgspec.structs import astuple

from app_server.engine.context.permission_text import filesystem_lines
from app_server_protocol.engine.thread_settings import ThreadSettings
from app_server_protocol.policy import (
    AskForApproval,
    DangerFullAccess,
    PermissionProfile,
    ReadOnly,
    SandboxPolicy,
    WorkspaceWrite,
)
from app_server_protocol.responses import InputText, MessageItem, ResponseItem
from app_server_protocol.rollout import AGENTS_HEAD, ENVIRONMENT_HEAD

CLOSE = "</environment_context>"


class EnvironmentContext(Struct, frozen=True):
    """The environment of a turn. A field is None if it is omitted; in a difference, if it is unchanged."""

    cwd: str | None
    approval_policy: AskForApproval | None
    sandbox_policy: SandboxPolicy | None
    shell: str | None

    def text(self) -> str:
        lines = [ENVIRONMENT_HEAD]
        if self.cwd is not None:
            lines.append(f"  <cwd>{self.cwd}</cwd>")
        if self.approval_policy is not None:
            lines.append(f"  <approval_policy>{self.approval_policy.value}</approval_policy>")
        if self.sandbox_policy is not None:
            lines.extend(_sandbox_lines(self.sandbox_policy))
        if self.shell is not None:
            lines.append(f"  <shell>{self.shell}</shell>")
        lines.append(CLOSE)
        return "\n".join(lines)

    def message(self) -> MessageItem:
        return user_text(self.text())


UNCHANGED: Final = EnvironmentContext(None, None, None, None)


def environment_of(settings: ThreadSettings, shell: str | None) -> EnvironmentContext:
    return EnvironmentContext(settings.cwd, settings.approval_policy, settings.sandbox_policy, shell)


def difference(before: EnvironmentContext, after: EnvironmentContext) -> EnvironmentContext | None:
    """Return the changed fields; None if nothing changed."""
    pairs = zip(astuple(before), astuple(after), strict=True)
    changed = EnvironmentContext(*(new if new != old else None for old, new in pairs))
    return None if changed == UNCHANGED else changed


def user_text(text: str) -> MessageItem:
    return MessageItem(role="user", content=(InputText(text=text),))


def _sandbox_lines(policy: SandboxPolicy) -> list[str]:
    roots: tuple[str, ...] = ()
    match policy:
        case PermissionProfile():
            word = "enabled" if policy.network else "restricted"
            return [f"  <network_access>{word}</network_access>", *filesystem_lines(policy)]
        case DangerFullAccess():
            network = True
        case ReadOnly():
            network = False
        case WorkspaceWrite():
            network, roots = policy.network_access, policy.writable_roots
    lines = [
        f"  <sandbox_mode>{policy.mode}</sandbox_mode>",
        f"  <network_access>{'enabled' if network else 'restricted'}</network_access>",
    ]
    if roots:
        lines += [
            "  <writable_roots>",
            *(f"    <root>{root}</root>" for root in roots),
            "  </writable_roots>",
        ]
    return lines


def project_instructions(cwd: str, text: str) -> MessageItem:
    return user_text(f"{AGENTS_HEAD}{cwd}\n\n<INSTRUCTIONS>\n{text}\n</INSTRUCTIONS>")


def opening_messages(
    environment: EnvironmentContext, *, developer: str | None, agents: str | None
) -> list[ResponseItem]:
    """Return, in this order: developer instructions, AGENTS.md, the environment."""
    out: list[ResponseItem] = []
    if developer:
        out.append(MessageItem(role="developer", content=(InputText(text=developer),)))
    if agents:
        out.append(project_instructions(environment.cwd or "", agents))
    out.append(environment.message())
    return out
