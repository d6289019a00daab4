"""The task that most turns are: the user said something, the agent works on it until it has answered.

`RegularSteps` is what such a turn does in the turn loop: its tools, its snapshot, its diff, the counting of its goal.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import anyio

from app_server.core.context.compacted_history import message_text
from app_server.core.errors import CoreError
from app_server.core.model.prompt import Prompt, ToolSpec
from app_server.core.session.commands import TurnWishes
from app_server.core.session.compaction import Compactor
from app_server.core.session.goal_turns import count_reply, goals_for_tools
from app_server.core.session.model_calls import (
    RequestShape,
    model_call,
    shape_of,
    tool_settings,
    tool_turn_of,
)
from app_server.core.session.output_schema import check_schema
from app_server.core.session.services import Services, SessionState
from app_server.core.session.snapshots import TurnSnapshot
from app_server.core.session.tasks import ActiveTask
from app_server.core.threads import run_in_thread
from app_server.core.tools.contract import Tool
from app_server.core.tools.registry import build_tools
from app_server.core.tools.runtime import ToolRuntime
from app_server.core.turn.items import UserWords
from app_server.core.turn.loop import AutoCompaction, TurnLoop
from app_server.core.turn.outbox import StoredTranscript
from app_server.core.turn.settings import Settings, Turn
from protocol.engine.events import TurnKind
from protocol.responses import ResponseItem
from protocol.structs import replace


class RegularSteps:
    def __init__(
        self,
        services: Services,
        state: SessionState,
        turn: Turn,
        shape: RequestShape,
        snapshot: TurnSnapshot,
        wishes: TurnWishes,
    ) -> None:
        self._services, self._state, self._turn, self._shape = services, state, turn, shape
        self._snapshot, self._wishes = snapshot, wishes
        self._tools: dict[str, Tool] = {}
        self._specs: list[ToolSpec] = []
        self.tool_turn = tool_turn_of(services, state, turn, relative_diff=wishes.relative_diff)
        self.tool_turn.strict_pictures = wishes.checks_pictures
        if wishes.goals and services.conversation.rollout_path is not None:
            self.tool_turn.goals = goals_for_tools(services, state)
        self.runtime = ToolRuntime(self._tools, self.tool_turn, snapshot.before_call)

    def prompt(self, items: Sequence[ResponseItem]) -> Prompt:
        return self._shape.prompt(items, self._specs, self._turn.output_schema)

    async def prepare(self) -> None:
        services = self._services
        await self._snapshot.begin()
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
        if self._wishes.goals:
            count_reply(self._services, self._state, self._turn.emitter, calls=calls)

    async def diff(self) -> str | None:
        diffs = self.tool_turn.diffs
        return await run_in_thread(diffs.unified_diff) or "" if diffs.touched else None


SERVERS_HEAD_START = 1.0
"""Seconds for which the first turn lets MCP servers go first, so that one which fails at once is reported before
it. The first request waits for the rest of their time."""

LAST_SNAPSHOT = 2.0
"""Seconds for the snapshot at the end of a turn that was interrupted: the user waits for its end."""


class RegularTask:
    """One turn with everything: tools, snapshot, compaction, notification."""

    kind = TurnKind.REGULAR

    def __init__(
        self,
        services: Services,
        state: SessionState,
        turn: Turn,
        words: UserWords,
        wishes: TurnWishes,
    ) -> None:
        self._services, self._state, self._turn = services, state, turn
        shape = shape_of(services, turn)
        self._shape = replace(
            shape, settings=replace(shape.settings, sends_chosen_effort=wishes.sends_chosen_effort)
        )
        self._opening = words
        self._wishes = wishes
        self._loop: TurnLoop | None = None
        self._steps: RegularSteps | None = None
        transcript = StoredTranscript(state.history, services.outbox)
        self._snapshot = TurnSnapshot(services, state, turn, transcript)
        self._transcript = self._snapshot.ahead_of_calls(transcript)

    async def run(self, active: ActiveTask) -> str | None:
        if self._turn.output_schema is not None:
            await check_schema(self._turn.output_schema)
        with anyio.move_on_after(SERVERS_HEAD_START):
            await self._services.mcp.ready()
        if self._wishes.skills:
            await self._send_skills()
        loop = self._loop = self._turn_loop(active)
        try:
            last = await loop.run(self._opening)
        except CoreError:
            await self._snapshot.finish()
            raise
        except anyio.get_cancelled_exc_class():
            with anyio.move_on_after(LAST_SNAPSHOT, shield=True):
                await self._snapshot.finish()
            raise
        await self._snapshot.finish()
        if (report := self._services.reports.turn_completed) is not None:
            texts = [
                message_text(words.message) for words in (self._opening, *active.taken) if words.is_shown
            ]
            report(self._turn.operation_id, texts, last)
        return last

    async def _send_skills(self) -> None:
        catalog, history = self._services.skills.get(), self._state.history
        message = await catalog.message(Path(self._turn.settings.cwd), history.items)
        if message is not None:
            StoredTranscript(history, self._services.outbox).record(self._turn.emitter, [message])

    async def _compact(self) -> None:
        await Compactor(self._services, self._state, self._turn, self._shape).run()

    def change_permissions(self, settings: Settings) -> None:
        """Change what commands and patches to come in this turn may do."""
        self._snapshot.policy = settings.sandbox_policy
        if self._steps is not None:
            self._steps.tool_turn.settings = tool_settings(settings)

    def interrupted(self) -> None:
        self._snapshot.record_taken()
        if self._loop is not None:
            self._loop.interrupted()
        elif self._wishes.names_turn:
            self._begin_for_the_record()

    def _begin_for_the_record(self) -> None:
        """Emit the begin of a turn that was ended before its loop began, with what the user said, and record it."""
        emitter, words = self._turn.emitter, self._opening
        emitter.turn_started(TurnKind.REGULAR, self._shape.context_window)
        StoredTranscript(self._state.history, self._services.outbox).record(emitter, words.messages())
        if words.is_shown:
            emitter.show(words.item(self._services.sources.new_id()))

    def _turn_loop(self, active: ActiveTask) -> TurnLoop:
        services, turn, shape = self._services, self._turn, self._shape
        steps = self._steps = RegularSteps(services, self._state, turn, shape, self._snapshot, self._wishes)
        return TurnLoop(
            kind=TurnKind.REGULAR,
            emitter=turn.emitter,
            transcript=self._transcript,
            tokens=self._state.tokens,
            model_call=model_call(services, self._state, turn, shape, self._transcript, steps.runtime),
            input=active,
            steps=steps,
            compaction=AutoCompaction(
                limit=shape.compact_limit, compact=self._compact, at_begin=self._wishes.compacts_at_begin
            ),
            new_id=services.sources.new_id,
        )
