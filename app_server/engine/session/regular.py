"""The usual task of a turn: the user sent input, and the agent works until it has answered."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import anyio

from app_server.engine.context.history import message_text
from app_server.engine.model.prompt import Prompt, ToolSpec
from app_server.engine.session import answer_schema, compaction
from app_server.engine.session.checkpoint import TurnCheckpoint
from app_server.engine.session.goal_turns import count_reply
from app_server.engine.session.head import gone_tools
from app_server.engine.session.hooked_task import HookedTask
from app_server.engine.session.model_notices import cut_notice
from app_server.engine.session.request_budget import OnCut, RequestBudget
from app_server.engine.session.session_commands import ApiBehaviour
from app_server.engine.session.session_services import TurnContext
from app_server.engine.session.text_call_notice import warn_of_written_call
from app_server.engine.session.turn_context import model_call, offered_tools, shape_of, tool_turn_of
from app_server.engine.support.engine_errors import ContextWindowExceeded
from app_server.engine.support.worker_threads import run_in_thread
from app_server.engine.tools.registry import ToolSet
from app_server.engine.tools.runtime import ToolRuntime
from app_server.engine.tools.tool_base import Strictness, Tool
from app_server.engine.turn.loop import AutoCompaction, TurnLoop
from app_server.engine.turn.turn_items import TurnInput
from app_server_protocol.engine.notices import WarningNotice
from app_server_protocol.engine.thread_settings import ThreadSettings
from app_server_protocol.responses import ResponseItem

SERVERS_HEAD_START = 1.0
"""Wait of the first turn for MCP servers, in seconds, so that a server which fails at once is reported before the turn.
The first request waits for the rest of their start-up.
"""


class RegularTask(HookedTask):
    """One turn with all features: tools, snapshot, diff, compaction, counting for the goal, notification."""

    takes_input = True

    def __init__(self, turn: TurnContext, turn_input: TurnInput, wishes: ApiBehaviour) -> None:
        super().__init__(turn)
        self._opening, self._wishes = turn_input, wishes
        self._shape = shape_of(turn, sends_chosen_effort=wishes.sends_chosen_effort)
        self._snapshot = TurnCheckpoint(turn, turn_input, ghost_commits=wishes.ghost_commits)
        self.tool_turn = tool_turn_of(turn, self._shape, relative_diff=wishes.relative_diff)
        self.tool_turn.changes = self._snapshot
        self.tool_turn.strictness = Strictness(wishes.checks_pictures, wishes.refuses_silent_tools)
        if wishes.goals and turn.services.conversation.rollout_path is not None:
            self.tool_turn.goals = turn.services.state.goals
        self._tools: dict[str, Tool] = {}
        self._specs: Sequence[ToolSpec] = ()
        self._offered = 0
        """Revision of the MCP tools among the offered tools."""
        self._loop: TurnLoop | None = None

    async def run(self) -> str | None:
        async with self.hooked():
            if self.turn.output_schema is not None:
                await answer_schema.check_schema(self.turn.output_schema)
            if self.turn.services.mcp.servers:
                with anyio.move_on_after(SERVERS_HEAD_START):
                    await self.turn.services.mcp.ready()
            if self._wishes.skills:
                await self._send_skills()
            loop = self._loop = self._turn_loop()
            try:
                async with self._snapshot.recorded():
                    last = await loop.run(self._opening)
            except Exception as error:
                if isinstance(error, ContextWindowExceeded) and error.window is not None:
                    # The next turn chooses the prompt and tools by the context window that the provider has named.
                    self.turn.services.state.heads.clear()
                self.turn.services.model.turn_ended()
                raise
            if (report := self.turn.services.reports.turn_completed) is not None:
                texts = [
                    message_text(turn_input.message)
                    for turn_input in (self._opening, *self.taken)
                    if turn_input.is_shown
                ]
                report(self.turn.emitter.operation_id, texts, last)
            self.turn.services.model.turn_ended()
            return last

    def abandon(self) -> None:
        self._snapshot.record_taken()
        if self._loop is not None:
            self._loop.abandon()
        elif self._wishes.names_turn:
            self._begin_for_the_record()

    def change_permissions(self, settings: ThreadSettings) -> None:
        """Change the permissions of later commands and patches in this turn."""
        self._snapshot.policy = settings.sandbox_policy
        self.tool_turn.settings = settings

    # --- in the loop
    async def prepare(self) -> None:
        services = self.turn.services
        await self._snapshot.begin()
        if services.mcp.servers:
            await services.mcp.ready()
        self._choose_tools()
        if services.state.is_restored:
            services.state.is_restored = False
            note = gone_tools(services.state.history.items, self._tools)
            if note is not None:
                self.turn.record(note)
        if services.outbox.identity and self._shape.unknown_notice is not None:
            self._warn_once(self._shape.unknown_notice)  # codex 0.58 has no such notice

    def _choose_tools(self) -> None:
        services = self.turn.services
        self._offered = services.mcp.revision
        tool_set = offered_tools(self.turn, self._shape, goals=self.tool_turn.goals is not None)
        self._shape.head.tools = tool_set.offered
        self._tools.update(tool_set.by_name)
        self._specs = tool_set.specs
        if tool_set.mcp_omitted:
            self._warn_of_tools(tool_set)

    def _offered_specs(self) -> Sequence[ToolSpec]:
        """Return the specifications of the tools, even before they are chosen for the turn's first request."""
        if not self._specs:
            return offered_tools(self.turn, self._shape, goals=self.tool_turn.goals is not None).specs
        return self._specs

    def _warn_of_tools(self, tool_set: ToolSet) -> None:
        """Warn once in the conversation that MCP tools do not fit."""
        shape = self._shape
        text = (
            f"{tool_set.mcp_omitted} of {tool_set.mcp_tools} MCP tools are not offered: the window of "
            f"`{shape.settings.model}` is {shape.bounds.window:,} tokens. Name fewer in `enabled_tools`."
        )
        self._warn_once(text)

    def _on_cut(self) -> OnCut:
        """Return the callback for requests that the provider has truncated."""
        model, name = self.turn.services.model, self._shape.settings.model

        def cut(read: int, estimated: int) -> None:
            model.learn_window(name, read)
            self._warn_once(cut_notice(read, estimated))

        return cut

    def _warn_once(self, text: str) -> None:
        shown = self.turn.services.commands.shown_once
        if text not in shown:
            shown.add(text)
            self.turn.emitter.emit(WarningNotice(message=text))

    def prompt(self, items: Sequence[ResponseItem]) -> Prompt:
        if self._offered != self.turn.services.mcp.revision or not self._shape.head.tools:
            self._choose_tools()  # a server's tools changed, or a compaction lets them be chosen again
        return self._shape.prompt(items, self._specs, self.turn.output_schema)

    def after_reply(self, answer: Sequence[ResponseItem], *, calls: bool) -> None:
        if not calls:
            warn_of_written_call(self.turn, answer, self._specs)
        if self._wishes.goals:
            count_reply(self.turn, calls=calls)

    async def diff(self) -> str | None:
        diffs = self.tool_turn.diffs
        return await run_in_thread(diffs.unified_diff) or "" if diffs.touched else None

    # --- its start
    async def _send_skills(self) -> None:
        services = self.turn.services
        cwd, items = Path(self.turn.settings.cwd), services.state.history.items
        tokens = self._shape.bounds.skills
        if tokens == 0:
            return
        may_read = services.commands.may_read(self.turn.settings.sandbox_policy, self.turn.settings.cwd)
        folders = services.conversation.skill_folders
        message = await services.home.skills.get().message(cwd, items, folders, may_read, tokens=tokens)
        if message is not None:
            self.turn.record(message)

    def _begin_for_the_record(self) -> None:
        """Emit and record the start and the user's input of a turn that was ended before its loop began."""
        emitter, turn_input = self.turn.emitter, self._opening
        emitter.turn_started(self.kind, self._shape.context_window)
        if not self.guards_input:
            self.turn.record(*turn_input.messages())
        if turn_input.is_shown:
            emitter.show(turn_input.item(self.turn.services.sources.new_id()))

    def _turn_loop(self) -> TurnLoop:
        turn, shape = self.turn, self._shape
        tools = ToolRuntime(self._tools, self.tool_turn, self._snapshot.before_call)
        return TurnLoop(
            model_call=model_call(turn, shape, self._snapshot.ahead_of_calls(), tools),
            steps=self,
            compaction=AutoCompaction(
                limit=shape.compact_limit,
                compact=lambda: self.compact_with_hooks(self._compact),
                at_begin=self._wishes.compacts_at_begin,
                budget=RequestBudget(
                    turn.services.state,
                    shape,
                    self._offered_specs,
                    self._on_cut() if shape.server.cuts_silently else None,
                    guesses=turn.services.model,
                ),
            ),
            new_id=turn.services.sources.new_id,
        )

    async def _compact(self) -> None:
        await compaction.compact(self.turn, self._shape, self._offered_specs)
