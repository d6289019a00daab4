"""A command that the user typed: run in their shell, as a turn of its own or within the turn that runs.

They are not asked whether it may run. A command of the conversation API runs under the turn's sandbox; where that stops
it, the turn's policy says whether the user is asked to let it run without one. A command of an API that gives it the
user's own rights runs without the sandbox, and the model is sent its output.
"""

from __future__ import annotations

from app_server.core.context.environment_context import user_text
from app_server.core.exec.command import CommandSpec, ExecResult
from app_server.core.injected_messages import USER_SHELL_HEAD
from app_server.core.session.commands import RunShell
from app_server.core.session.model_calls import shape_of, tool_turn_of
from app_server.core.session.services import Services, SessionState
from app_server.core.session.tasks import ActiveTask
from app_server.core.tools.contract import ToolFailure
from app_server.core.tools.events import OutputDeltas, finished_command
from app_server.core.tools.orchestrator import Command, run_command, run_with_approval
from app_server.core.turn.outbox import StoredTranscript
from app_server.core.turn.settings import Turn
from protocol.engine.events import TurnKind
from protocol.engine.items import CommandExecution
from protocol.responses import MessageItem


class UserShellTask:
    """A turn in which only the user's command runs."""

    kind = TurnKind.USER_SHELL

    def __init__(self, services: Services, state: SessionState, turn: Turn, request: RunShell) -> None:
        self._services, self._state, self._turn, self._request = services, state, turn, request

    async def run(self, active: ActiveTask) -> str | None:
        window = shape_of(self._services, self._turn).context_window
        self._turn.emitter.turn_started(TurnKind.USER_SHELL, window)
        run = _run_confined if self._request.confined else run_with_users_rights
        await run(self._services, self._state, self._turn, self._request)
        return None

    def interrupted(self) -> None:
        pass


async def _run_confined(services: Services, state: SessionState, turn: Turn, request: RunShell) -> None:
    """Run the command in the sandbox. Nothing of it enters the history."""
    try:
        await run_command(_command(services, turn, request), tool_turn_of(services, state, turn))
    except ToolFailure:
        pass  # its end event has informed the user


async def run_with_users_rights(
    services: Services, state: SessionState, turn: Turn, request: RunShell
) -> None:
    """Run the command without the sandbox, as an item of the turn; then record what it printed in the history."""
    tool_turn, command = tool_turn_of(services, state, turn), _command(services, turn, request)

    async def execute(spec: CommandSpec) -> ExecResult:
        return await services.commands.runner.run(
            spec, OutputDeltas(command.call_id, tool_turn.emit).emit_output
        )

    try:
        result = await run_with_approval(command, tool_turn, execute)
    except ToolFailure as failure:
        message = note(request.command, f"It could not be run: {failure}")
    else:
        item = finished_command(command.item(), result)
        turn.emitter.complete(item)
        message = note(request.command, _outcome(item))
    StoredTranscript(state.history, services.outbox).record(turn.emitter, [message])


def _command(services: Services, turn: Turn, request: RunShell) -> Command:
    return Command(
        call_id=services.sources.new_id(),
        argv=(services.commands.shell_path, "-lc", request.command),
        cwd=turn.settings.cwd,
        timeout_ms=request.timeout_ms,
        user_shell=True,
        unconfined=not request.confined,
    )


def note(command: str, outcome: str) -> MessageItem:
    """Return what the model is sent about the command. The tags are those of codex 0.58, which knows by them
    that the user did not write this.
    """
    body = f"<command>\n{command}\n</command>\n<result>\n{outcome}\n</result>"
    return user_text(f"{USER_SHELL_HEAD}\n{body}\n</user_shell_command>")


def _outcome(item: CommandExecution) -> str:
    return f"Exit code: {item.exit_code}\nDuration: {item.seconds or 0.0:.1f} seconds\nOutput:\n{item.shown_output}"
