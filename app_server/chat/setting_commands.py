"""Slash commands about settings, and about what there is: models, policies, MCP servers, skills."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from app_server.chat.choices import PickerRow
from app_server.chat.slash_context import SlashCommand, SlashContext
from protocol.v2 import settings

APPROVALS: Final = ("untrusted", "on-request", "never")
SANDBOXES: Final[Mapping[str, settings.SandboxPolicy]] = {
    "read-only": settings.ReadOnlySandboxPolicy(),
    "workspace-write": settings.WorkspaceWriteSandboxPolicy(),
    "danger-full-access": settings.DangerFullAccessSandboxPolicy(),
}


async def model(at: SlashContext, argument: str) -> None:
    """Take the model that is named, or let the user choose one, and how hard it thinks."""
    name, _, effort = argument.partition(" ")
    if not name:
        models = await at.named.models(at.chat.thread.opened.model_provider)
        used = {at.chat.model: "in use; "}
        rows = [PickerRow(each.model, used.get(each.model, "") + each.description, each) for each in models]
        chosen = await at.choose("model", rows)
        if chosen is None:
            return
        name = chosen.model
        efforts = [
            PickerRow(each.reasoning_effort, each.description, each.reasoning_effort)
            for each in chosen.supported_reasoning_efforts
        ]
        effort = (await at.choose("effort", efforts) if efforts else None) or ""
    at.chat.settings["model"] = at.chat.model = name
    if effort.strip():
        at.chat.settings["effort"] = effort.strip()
    at.print(f"from the next turn on: {name} {effort.strip()}".rstrip())


async def approvals(at: SlashContext, argument: str) -> None:
    if argument not in APPROVALS:
        at.print(f"{at.chat.approval_policy}; expected one of {', '.join(APPROVALS)}")
        return
    at.chat.settings["approval_policy"] = argument  # type: ignore[typeddict-item]  # one of the words
    at.chat.approval_policy = argument
    at.print(f"from the next turn on: {argument}")


async def sandbox(at: SlashContext, argument: str) -> None:
    policy = SANDBOXES.get(argument)
    if policy is None:
        at.print(f"{at.chat.sandbox}; expected one of {', '.join(SANDBOXES)}")
        return
    at.chat.settings["sandbox_policy"] = policy
    at.chat.sandbox = argument
    at.print(f"from the next turn on: {argument}")


async def status(at: SlashContext, argument: str) -> None:
    chat, opened = at.chat, at.chat.thread.opened
    for name, value in (
        ("thread", chat.thread.id),
        ("folder", opened.cwd),
        ("model", f"{chat.model} ({opened.model_provider})"),
        ("approvals", chat.approval_policy),
        ("sandbox", chat.sandbox),
        ("tokens", str(chat.tokens)),
        ("stored in", _place(opened.thread.path)),
    ):
        at.print(f"  {name:<10}{value}")


async def mcp(at: SlashContext, argument: str) -> None:
    listed = await at.chat.server.request_raw("mcpServerStatus/list", {})
    for server in listed["data"]:
        at.print(f"  {server['name']}: {', '.join(sorted(server['tools'])) or 'no tools'}")
    if not listed["data"]:
        at.print("no MCP server is configured")


async def skills(at: SlashContext, argument: str) -> None:
    found = await at.named.skills(str(at.chat.cwd))
    for skill in found:
        at.print(f"  {skill['name']}: {skill['description']}")
    if not found:
        at.print("there are no skills here")


def _place(path: str | None) -> str:
    """Say where the thread is stored: a transcript is written with the first turn, if it can be."""
    if path is None:
        return "nowhere"
    return path if Path(path).is_file() else f"{path} (nothing is stored there)"


SETTING_COMMANDS: Final[Mapping[str, SlashCommand]] = {
    "model": SlashCommand("choose among the models that the provider serves", model, "[NAME [EFFORT]]"),
    "approvals": SlashCommand("when you are asked", approvals, "[POLICY]", APPROVALS),
    "sandbox": SlashCommand("what commands may do", sandbox, "[MODE]", tuple(SANDBOXES)),
    "status": SlashCommand("the thread and its settings", status),
    "mcp": SlashCommand("MCP servers and their tools", mcp),
    "skills": SlashCommand("skills of this folder", skills),
}
