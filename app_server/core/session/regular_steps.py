"""What a regular turn does in the turn loop: its tools, its snapshot, its diff, the counting of its goal."""

from __future__ import annotations

from collections.abc import Sequence

from app_server.core.model.prompt import Prompt, ToolSpec
from app_server.core.patch.changes import TurnDiffTracker
from app_server.core.session.goal_turns import count_reply, goals_for_tools
from app_server.core.session.services import Services
from app_server.core.session.snapshots import TurnSnapshot
from app_server.core.session.state import SessionState
from app_server.core.session.tool_turns import tool_turn_of
from app_server.core.threads import run_in_thread
from app_server.core.tools.contract import Tool
from app_server.core.tools.registry import build_tools
from app_server.core.tools.runtime import ToolRuntime
from app_server.core.turn.request_shape import RequestShape
from app_server.core.turn.settings import Turn
from protocol.responses import ResponseItem


class RegularSteps:
    def __init__(
        self,
        services: Services,
        state: SessionState,
        turn: Turn,
        shape: RequestShape,
        snapshot: TurnSnapshot,
        *,
        of_thread: bool,
    ) -> None:
        self._services, self._state, self._turn, self._shape = services, state, turn, shape
        self._of_thread = of_thread
        self._diffs = TurnDiffTracker(
            str(services.conversation.config.home), base=turn.settings.cwd if of_thread else None
        )
        self._tools: dict[str, Tool] = {}
        self._specs: list[ToolSpec] = []
        self.tool_turn = tool_turn_of(services, state, turn, self._diffs)
        self.tool_turn.strict_pictures = of_thread
        if of_thread and services.conversation.rollout_path is not None:
            self.tool_turn.goals = goals_for_tools(services, state)
        self.runtime = ToolRuntime(self._tools, self.tool_turn, snapshot.before_call)

    def prompt(self, items: Sequence[ResponseItem]) -> Prompt:
        return self._shape.prompt(items, self._specs, self._turn.output_schema)

    async def prepare(self) -> None:
        services = self._services
        await services.mcp.ready()
        tool_set = build_tools(
            services.conversation.config,
            self._shape.family,
            services.mcp,
            goals=self.tool_turn.goals is not None,
            client_tools=services.conversation.client_tools,
            mode=self._turn.settings.mode.kind,
        )
        self._tools.update(tool_set.by_name())
        self._specs.extend(tool_set.specs())

    def after_reply(self, *, calls: bool) -> None:
        if self._of_thread:
            count_reply(self._services, self._state, self._turn.emitter, calls=calls)

    async def diff(self) -> str | None:
        return await run_in_thread(self._diffs.unified_diff) or "" if self._diffs.touched else None
