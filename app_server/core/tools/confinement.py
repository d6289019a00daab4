"""The sandbox plan of a turn's commands and patches, with a warning event if the machine cannot enforce all of it.

The client is warned once per conversation before anything runs in a weaker sandbox than the policy promises. Terminals
with more rights than the current policy grants are ended before anything else runs.
"""

from __future__ import annotations

from typing import Final

from app_server.core.approvals.consent import rights_of
from app_server.core.approvals.programs import exposed_folders
from app_server.core.sandbox.plan import SandboxPlan
from app_server.core.tools.contract import ToolTurn
from protocol.events.notices import WarningEvent

NOTICE: Final = "sandbox"
"""The key under which the conversation records that it has sent the warning."""


async def confinement(turn: ToolTurn) -> SandboxPlan | None:
    """None for full access. The writable root is the turn's directory, never one that the model names."""
    plan = writable_scope(turn)
    settings = turn.settings
    turn.commands.exposed_folders.update(
        exposed_folders(settings.cwd, () if plan is None else plan.writable_roots)
    )
    if len(turn.commands.terminals):
        for terminal in await turn.commands.terminals.end_outdated(rights_of(plan)):
            terminal.tell_end()
    if plan is not None and NOTICE not in turn.shown_once:
        state = await turn.commands.runner.sandbox_state()
        turn.shown_once.add(NOTICE)
        if state.warning is not None:
            turn.emit(WarningEvent(message=state.warning))
    return plan


def writable_scope(turn: ToolTurn) -> SandboxPlan | None:
    """The plan for the roots of the conversation. Emits one warning for each root that cannot be granted."""
    settings = turn.settings
    plan = turn.commands.runner.plan(settings.sandbox_policy, settings.cwd, turn.commands.roots)
    for notice in plan.notices if plan is not None else ():
        if notice not in turn.shown_once:
            turn.shown_once.add(notice)
            turn.emit(WarningEvent(message=notice))
    return plan
