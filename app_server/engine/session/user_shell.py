"""A command that the user typed: it runs in their shell, as a turn of its own or within the current turn.

The user needs to approve nothing. A command of the conversation API runs under the turn's sandbox; if the sandbox stops
it, the turn's policy decides whether the user is asked to run it without one. A command of an API that gives it the
user's own rights runs without the sandbox, and the model is sent its output.
"""

from __future__ import annotations

from app_server.engine.context.environment_context import user_text
from app_server.engine.sandbox.exec.command import CommandSpec, ExecResult
from app_server.engine.session.session_commands import RunShell
from app_server.engine.session.session_services import TurnContext
from app_server.engine.session.tasks import SessionTask
from app_server.engine.session.turn_context import shape_of, tool_turn_of
from app_server.engine.tools.orchestrator import Command, run_command, run_with_approval
from app_server.engine.tools.tool_base import ToolFailure
from app_server.engine.tools.tool_events import OutputDeltas, finished_command
from app_server_protocol.engine.events import TurnKind
from app_server_protocol.engine.items import CommandExecution, CommandSource
from app_server_protocol.responses import MessageItem
from app_server_protocol.rollout import USER_SHELL_HEAD


class UserShellTask(SessionTask):
    """A turn in which only the user's command runs."""

    kind = TurnKind.USER_SHELL

    def __init__(self, turn: TurnContext, request: RunShell) -> None:
        super().__init__(turn)
        self._request = request

    async def run(self) -> str | None:
        self.turn.emitter.turn_started(self.kind, shape_of(self.turn).context_window)
        await (self._run_confined() if self._request.confined else self.run_with_users_rights())
        return None

    async def _run_confined(self) -> None:
        """Run the command in the sandbox. Nothing of it is recorded in the history."""
        try:
            await run_command(self._command(), tool_turn_of(self.turn, shape_of(self.turn)))
        except ToolFailure:
            pass  # the user was informed by its end event

    async def run_with_users_rights(self) -> None:
        """Run the command without the sandbox, as an item of the turn, and record its output in the history."""
        tool_turn, command = tool_turn_of(self.turn, shape_of(self.turn)), self._command()

        async def execute(spec: CommandSpec) -> ExecResult:
            show = OutputDeltas(command.call_id, tool_turn.emit).emit_output
            return await self.turn.services.commands.runner.run(spec, show)

        try:
            result = await run_with_approval(command, tool_turn, execute)
        except ToolFailure as failure:
            message = note(self._request.command, f"It could not be run: {failure}")
        else:
            item = finished_command(command.item(), result, tool_turn.output_limit)
            self.turn.emitter.complete(item)
            message = note(self._request.command, _outcome(item))
        self.turn.record(message)

    def _command(self) -> Command:
        return Command(
            call_id=self.turn.services.sources.new_id(),
            argv=(self.turn.services.commands.shell_path, "-lc", self._request.command),
            cwd=self.turn.settings.cwd,
            timeout_ms=self._request.timeout_ms,
            source=CommandSource.USER_SHELL,
            unconfined=not self._request.confined,
        )


def note(command: str, outcome: str) -> MessageItem:
    """Return the message about the command for the model. The tags are those of codex 0.58, which identifies by them a
    message that the user did not write.
    """
    body = f"<command>\n{command}\n</command>\n<result>\n{outcome}\n</result>"
    return user_text(f"{USER_SHELL_HEAD}\n{body}\n</user_shell_command>")


def _outcome(item: CommandExecution) -> str:
    return f"Exit code: {item.exit_code}\nDuration: {item.seconds or 0.0:.1f} seconds\nOutput:\n{item.shown_output}"
