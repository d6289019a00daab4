"""The opening messages of a conversation, and the environment context: first in full, then only the changes. Pure.

The XML-like form is that of codex 0.58, so that conversations can move between both.
"""

from __future__ import annotations

from typing import Final

from app_server.engine.context.permission_text import filesystem_lines
from app_server_protocol.engine.thread_settings import UNSET, SettingsPatch, ThreadSettings
from app_server_protocol.policy import (
    DangerFullAccess,
    PermissionProfile,
    ReadOnly,
    SandboxPolicy,
    WorkspaceWrite,
)
from app_server_protocol.responses import InputText, MessageItem, ResponseItem
from app_server_protocol.rollout import AGENTS_HEAD, ENVIRONMENT_HEAD

CLOSE = "</environment_context>"


TOLD: Final = ("cwd", "approval_policy", "sandbox_policy")
"""Settings that the environment context names."""


def environment_message(settings: ThreadSettings, shell: str | None) -> MessageItem:
    """Return the whole environment context. `shell` is the short name of the user's shell; None if it is unknown."""
    return user_text(_context(settings.part(TOLD), shell))


def environment_change(before: ThreadSettings, now: ThreadSettings) -> MessageItem | None:
    """Return the environment context with what has changed; None if nothing has."""
    changed = [name for name in TOLD if getattr(now, name) != getattr(before, name)]
    return user_text(_context(now.part(changed), None)) if changed else None


def _context(told: SettingsPatch, shell: str | None) -> str:
    lines = [ENVIRONMENT_HEAD]
    if told.cwd is not UNSET:
        lines.append(f"  <cwd>{told.cwd}</cwd>")
    if told.approval_policy is not UNSET:
        lines.append(f"  <approval_policy>{told.approval_policy.value}</approval_policy>")
    if told.sandbox_policy is not UNSET:
        lines.extend(_sandbox_lines(told.sandbox_policy))
    if shell is not None:
        lines.append(f"  <shell>{shell}</shell>")
    return "\n".join([*lines, CLOSE])


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
    settings: ThreadSettings, shell: str | None, *, developer: str | None, agents: str | None
) -> list[ResponseItem]:
    """Return, in this order: developer instructions, AGENTS.md, the environment."""
    out: list[ResponseItem] = []
    if developer:
        out.append(MessageItem(role="developer", content=(InputText(text=developer),)))
    if agents:
        out.append(project_instructions(settings.cwd, agents))
    out.append(environment_message(settings, shell))
    return out
