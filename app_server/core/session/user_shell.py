"""A command that the user typed: run in their shell, under the turn's sandbox.

They are not asked whether it may run. Where the sandbox stops it, the turn's policy says whether they are asked to let
it run without one, as for any other command.
"""

from __future__ import annotations

from app_server.core.patch.turn_diff import TurnDiffTracker
from app_server.core.session.model_calls import shape_of
from app_server.core.session.regular import tool_turn_of
from app_server.core.session.services import Services
from app_server.core.session.state import SessionState
from app_server.core.session.tasks import ActiveTask
from app_server.core.tools.contract import ToolFailure
from app_server.core.tools.orchestrator import Command, run_command
from app_server.core.turn.settings import Turn
from protocol.engine.events import TurnKind

TIMEOUT_MS = 60 * 60 * 1000
"""The user can interrupt; this is for what was forgotten."""


class UserShellTask:
    """`task_started`, the command's events, the end. Nothing of it enters the history."""

    kind = TurnKind.USER_SHELL

    def __init__(self, services: Services, state: SessionState, turn: Turn, command: str) -> None:
        self._services, self._state, self._turn, self._command = services, state, turn, command

    async def run(self, active: ActiveTask) -> str | None:
        services, turn = self._services, self._turn
        turn.emitter.turn_started(TurnKind.USER_SHELL, shape_of(services, turn).context_window)
        command = Command(
            call_id=services.new_id(),
            argv=(services.instructions.shell_path, "-lc", self._command),
            cwd=turn.settings.cwd,
            timeout_ms=TIMEOUT_MS,
            user_shell=True,
        )
        try:
            await run_command(command, tool_turn_of(services, self._state, turn, TurnDiffTracker()))
        except ToolFailure:
            pass  # its end event has told the user
        return None

    def interrupted(self) -> None:
        pass
