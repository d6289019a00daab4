"""The MCP servers of one conversation: their start, the events about it, and their elicitations, which are questions to
the user: an event has the question, a command has the answer.

If no client declared support for elicitations, or if the user disabled them, they are declined at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from anyio.abc import TaskGroup

from app_server.engine.approvals.broker import PendingAnswers
from app_server.engine.config.mcp_server_settings import McpServerConfig
from app_server.engine.mcp.mcp_manager import McpManager
from app_server.engine.mcp.runtime_interface import ElicitationRequest, ElicitationResult
from app_server.engine.session.session_commands import AnswerElicitation
from app_server.engine.turn.emitter import TurnEmitter
from app_server.engine.turn.outbox import Outbox
from app_server_protocol.engine.events import McpServersSettled
from app_server_protocol.engine.notices import WarningNotice
from app_server_protocol.engine.questions import ElicitationQuestion


class SessionServers:
    def __init__(self, manager: McpManager, outbox: Outbox) -> None:
        self.manager, self._outbox = manager, outbox
        self._group: TaskGroup | None = None

    def start(self, group: TaskGroup) -> None:
        """Start the servers of the configuration, in the task group of the session."""
        self._group = group
        if self.manager.configured:
            self._start(group)

    def stop(self) -> None:
        """Forget the task group, which has ended together with the servers."""
        self._group = None

    def reload(self, servers: Mapping[str, McpServerConfig]) -> None:
        """Stop the servers and start the given ones. Running calls fail."""
        self.manager.reload(servers)
        if self._group is not None:
            self._start(self._group)

    def _start(self, group: TaskGroup) -> None:
        if not self.manager.started:
            group.start_soon(self.manager.run_servers, name="mcp")
        group.start_soon(self._report, name="mcp start")

    async def _report(self) -> None:
        manager, servers = self.manager, self.manager.servers
        await manager.ready()
        if manager.servers is not servers:
            return  # other servers were started meanwhile; they are reported when they are ready
        self._outbox.emit("", McpServersSettled(tuple(failure.message for failure in manager.failures())))
        for notice in manager.notices():
            self._outbox.emit("", WarningNotice(message=notice))


class Elicitations:
    """The open elicitations of one session, by server and number."""

    def __init__(
        self,
        announce: Callable[[ElicitationQuestion, str | None], None],
        *,
        may_ask: Callable[[], bool],
    ) -> None:
        """`announce` receives the id of the current turn."""
        self._announce, self._may_ask = announce, may_ask
        self.running_turn: Callable[[], TurnEmitter | None] = lambda: None
        """Returns the current turn. The session sets it, since it begins turns."""
        self._next = 0
        self._open = PendingAnswers[tuple[str, str], ElicitationResult]()

    async def ask(self, request: ElicitationRequest) -> ElicitationResult:
        """Ask the user, and wait for the answer."""
        if not self._may_ask():
            return ElicitationResult()
        self._next += 1
        event = ElicitationQuestion(
            server=request.server,
            id=str(self._next),
            message=request.message,
            requested_schema=request.requested_schema,
        )
        turn = self.running_turn()
        turn_id = None if turn is None else turn.turn_id
        return await self._open.ask((request.server, event.id), lambda: self._announce(event, turn_id))

    def resolve(self, command: AnswerElicitation) -> None:
        answer = ElicitationResult(command.action, command.content)
        self._open.resolve((command.server, command.request_id), answer)
