"""The sandbox plan of a turn's commands and patches, with a warning event if the machine cannot enforce all of it.

The client is warned once per conversation before anything runs in a weaker sandbox than the policy promises. Terminals
with more rights than the current policy grants are ended before anything else runs. The client is also warned of
programs that the user configured to run outside of the sandbox, where commands may change them.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from typing import Final

from app_server.core.approvals.consent import rights_of
from app_server.core.approvals.planted import exposed_folders
from app_server.core.config.types import WORKSPACE, Config, McpStdioTransport
from app_server.core.real_path import real_path
from app_server.core.sandbox.plan import SandboxPlan, within
from app_server.core.tools.contract import ToolTurn
from protocol.events.notices import WarningEvent

NOTICE: Final = "sandbox"
"""The key under which the conversation records that it has sent the warning."""


async def confinement(turn: ToolTurn) -> SandboxPlan | None:
    """Make the plan of a command of this turn; None for full access. The writable root is the turn's directory, never
    one that the model names.
    """
    plan = writable_scope(turn)
    settings = turn.settings
    turn.commands.exposed_folders.update(
        exposed_folders(settings.cwd, () if plan is None else plan.writable_roots)
    )
    if len(turn.commands.terminals):
        for terminal in await turn.commands.terminals.end_outdated(rights_of(plan)):
            terminal.tell_end()
    if plan is not None and NOTICE not in turn.commands.shown_once:
        state = await turn.commands.runner.sandbox.state()
        turn.commands.shown_once.add(NOTICE)
        if state.warning is not None:
            turn.emit(WarningEvent(message=state.warning))
    if plan is not None:
        for text in _programs_at_risk(turn, plan):
            turn.emit(WarningEvent(message=text))
    return plan


def writable_scope(turn: ToolTurn) -> SandboxPlan | None:
    """Return the plan for the roots of the conversation. Emits one warning for each root that cannot be granted."""
    settings = turn.settings
    plan = turn.commands.runner.plan(settings.sandbox_policy, settings.cwd, turn.commands.roots)
    for notice in plan.notices if plan is not None else ():
        if notice not in turn.commands.shown_once:
            turn.commands.shown_once.add(notice)
            turn.emit(WarningEvent(message=notice))
    return plan


def _programs_at_risk(turn: ToolTurn, plan: SandboxPlan) -> Iterator[str]:
    """Return what to tell about each configured program that commands may change. Looks at the same roots once."""
    key = f"programs in {plan.writable_roots}"
    if key in turn.commands.shown_once:
        return
    turn.commands.shown_once.add(key)
    search = turn.commands.runner.environment.get("PATH", os.defpath)
    for owner, folder, words in _configured_programs(turn.config, turn.settings.cwd):
        for word in (shutil.which(words[0], path=search) or words[0], *words[1:]):
            path = os.path.join(folder, word)
            if not os.path.isabs(path) or not os.path.isfile(path):
                continue
            real = real_path(path)
            root = next((root for root in plan.writable_roots if within(real, root)), None)
            if root is not None and not any(within(real, fence) for fence in plan.protected):
                yield (
                    f"{owner} runs {path} outside of the sandbox, and commands may change it: move it out of {root}."
                )


def _configured_programs(config: Config, cwd: str) -> Iterator[tuple[str, str, Sequence[str]]]:
    """Find who runs a program, the folder to which its words are relative (none: they are not), the program and its
    arguments.
    """
    if config.notify:
        yield "`notify`", "", config.notify
    for name, server in config.mcp_servers.items():
        transport = server.transport
        if server.enabled and isinstance(transport, McpStdioTransport):
            folder = cwd if transport.cwd == WORKSPACE else transport.cwd or ""
            yield f"The MCP server {name}", folder, (transport.command, *transport.args)
