"""The plan that a turn's commands and patches run under, and the word about it where the machine cannot keep it all.

Nothing runs in a weaker sandbox than the policy promises without the client having been told, once a conversation. And
nothing runs beside a terminal that has rights which the policy has lost.
"""

from __future__ import annotations

from typing import Final

from app_server.core.approvals.consent import rights_of
from app_server.core.approvals.programs import exposed_folders
from app_server.core.sandbox.plan import SandboxPlan
from app_server.core.tools.contract import ToolTurn
from app_server.core.tools.output_events import ended
from app_server.core.tools.terminals import Terminal
from protocol.events.notices import WarningEvent

NOTICE: Final = "sandbox"
"""What the conversation remembers to have told."""


async def confinement(turn: ToolTurn) -> SandboxPlan | None:
    """None for full access. The turn's directory is the root that may be written, never one that the model names."""
    plan = writable_scope(turn)
    settings = turn.settings
    turn.exposed_folders.update(exposed_folders(settings.cwd, () if plan is None else plan.writable_roots))
    if len(turn.terminals):
        for terminal in await turn.terminals.end_outdated(rights_of(plan)):
            end_terminal(terminal, turn)
    if plan is not None and NOTICE not in turn.notices:
        state = await turn.runner.sandbox_state()
        turn.notices.add(NOTICE)
        if state.warning is not None:
            turn.emit(WarningEvent(message=state.warning))
    return plan


def writable_scope(turn: ToolTurn) -> SandboxPlan | None:
    """The plan by the roots of the conversation. What of them cannot be granted is told, once each."""
    settings = turn.settings
    plan = turn.runner.plan(settings.sandbox_policy, settings.cwd, turn.roots)
    for notice in plan.notices if plan is not None else ():
        if notice not in turn.notices:
            turn.notices.add(notice)
            turn.emit(WarningEvent(message=notice))
    return plan


def end_terminal(terminal: Terminal, turn: ToolTurn) -> None:
    """Emits the end of a terminal's item, which began in this turn or in an earlier one."""
    item = ended(terminal.item, terminal.result(turn.clock()))
    if terminal.begun is None:
        turn.items.complete(item)
    else:
        turn.items.complete_detached(item, terminal.begun, terminal.turn_id)
