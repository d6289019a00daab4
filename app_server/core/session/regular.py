"""The task that most turns are: the user said something, the agent works on it until it has answered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import anyio

from app_server.core.context.compacted_history import message_text
from app_server.core.errors import CoreError
from app_server.core.model.prompt import Prompt, ToolSpec
from app_server.core.patch.turn_diff import TurnDiffTracker
from app_server.core.session.compaction import Compactor
from app_server.core.session.goal_turns import count_reply, goals_for_tools
from app_server.core.session.model_calls import shape_of, visible_call
from app_server.core.session.output_schema import check_schema
from app_server.core.session.services import Services
from app_server.core.session.snapshots import TurnSnapshot
from app_server.core.session.state import SessionState
from app_server.core.session.tasks import ActiveTask
from app_server.core.threads import run_in_thread
from app_server.core.tools.contract import Tool, ToolTurn, TurnSettings
from app_server.core.tools.registry import build_tools
from app_server.core.tools.runtime import ToolRuntime
from app_server.core.turn.loop import TurnLoop
from app_server.core.turn.settings import Settings, Turn
from app_server.core.turn.transcript import StoredTranscript
from app_server.core.turn.user_words import UserWords
from protocol.engine.events import TurnKind
from protocol.responses import ResponseItem

SERVERS_HEAD_START = 1.0
"""Seconds for which the first turn lets MCP servers go first, so that one which fails at once is told of before
it. The first request waits for the rest of their time."""


class RegularTask:
    """One turn with everything: tools, snapshot, compaction, notification."""

    kind = TurnKind.REGULAR

    def __init__(
        self,
        services: Services,
        state: SessionState,
        turn: Turn,
        words: UserWords,
        *,
        of_thread: bool = False,
    ) -> None:
        """`of_thread`: the turn is of an API that knows skills and goals, so the model is told of them. A full context
        is compacted as it begins, its diff names files relative to its directory, and an effort that the user chose is
        sent to any model."""
        self._services, self._state, self._turn = services, state, turn
        shape = shape_of(services, turn)
        self._shape = replace(shape, settings=replace(shape.settings, sends_chosen_effort=of_thread))
        self._opening, self._words = words, [words]
        self._of_thread = of_thread
        self._loop: TurnLoop | None = None
        self._tool_turn: ToolTurn | None = None
        transcript = StoredTranscript(state.history, services.outbox)
        self._snapshot = TurnSnapshot(services, state, turn, transcript)
        self._transcript = self._snapshot.ahead_of_calls(transcript)

    async def run(self, active: ActiveTask) -> str | None:
        await check_schema(self._turn.output_schema)
        with anyio.move_on_after(SERVERS_HEAD_START):
            await self._services.mcp.ready()
        if self._of_thread:
            await self._tell_of_skills()
        async with anyio.create_task_group() as side:
            side.start_soon(self._snapshot.take, name="snapshot")
            loop = self._loop = self._turn_loop(active)
            try:
                last = await loop.run(self._opening)
            except CoreError:
                await self._snapshot.record()
                raise
            await self._snapshot.record()
        texts = [message_text(words.message) for words in self._words if words.is_shown]
        self._services.reports.turn_completed(self._turn.operation_id, texts, last)
        return last

    async def _tell_of_skills(self) -> None:
        catalog, history = self._services.skills.get(), self._state.history
        message = await catalog.message(Path(self._turn.settings.cwd), history.items)
        if message is not None:
            StoredTranscript(history, self._services.outbox).record(self._turn.emitter, [message])

    def change_permissions(self, settings: Settings) -> None:
        """For the commands and patches to come in this turn."""
        if self._tool_turn is not None:
            self._tool_turn.settings = tool_settings(settings)

    def interrupted(self) -> None:
        self._snapshot.record_taken()
        if self._loop is not None:
            self._loop.interrupted()
        elif self._of_thread:
            self._begin_for_the_record()

    def _begin_for_the_record(self) -> None:
        """The turn was ended before its loop began: what the user said is an item and in the history all the same."""
        emitter, words = self._turn.emitter, self._opening
        emitter.turn_started(TurnKind.REGULAR, self._shape.context_window)
        StoredTranscript(self._state.history, self._services.outbox).record(emitter, words.messages())
        if words.is_shown:
            emitter.show(words.item(self._services.sources.new_id()))

    def _turn_loop(self, active: ActiveTask) -> TurnLoop:
        services, turn, shape = self._services, self._turn, self._shape
        diffs = TurnDiffTracker(base=turn.settings.cwd if self._of_thread else None)
        tool_turn = self._tool_turn = tool_turn_of(services, self._state, turn, diffs)
        tool_turn.goals = goals_for_tools(services, self._state) if self._of_thread else None
        tools: dict[str, Tool] = {}
        specs: list[ToolSpec] = []
        runtime = ToolRuntime(tools, tool_turn, self._snapshot.taken)

        def prompt(items: Sequence[ResponseItem]) -> Prompt:
            return shape.prompt(items, specs, turn.output_schema)

        def take_input() -> list[UserWords]:
            taken = active.take_input()
            self._words += taken
            return taken

        async def prepare() -> None:
            await services.mcp.ready()
            tool_set = build_tools(
                services.conversation.config,
                shape.family,
                services.mcp,
                goals=self._of_thread,
                client_tools=services.conversation.client_tools,
                mode=turn.settings.mode.kind,
            )
            tools.update(tool_set.by_name())
            specs.extend(tool_set.specs())

        def after_reply(calls: bool) -> None:
            if self._of_thread:
                count_reply(services, self._state, turn.emitter, calls=calls)

        async def diff() -> str | None:
            return await run_in_thread(diffs.unified_diff) if diffs.touched else None

        return TurnLoop(
            kind=TurnKind.REGULAR,
            emitter=turn.emitter,
            transcript=self._transcript,
            tokens=self._state.tokens,
            model_call=visible_call(services, self._state, turn, shape, self._transcript, runtime),
            prompt=prompt,
            take_input=take_input,
            has_steered=active.has_steered,
            prepare=prepare,
            compact=Compactor(services, self._state, turn, shape).run,
            compact_limit=shape.compact_limit,
            diff=diff,
            before_recording=self._snapshot.record,
            new_id=services.sources.new_id,
            after_reply=after_reply,
            compacts_first=self._of_thread,
        )


def tool_turn_of(services: Services, state: SessionState, turn: Turn, diffs: TurnDiffTracker) -> ToolTurn:
    """The services of this turn for its tools."""
    return ToolTurn(
        id=turn.operation_id,
        settings=tool_settings(turn.settings),
        config=services.conversation.config,
        items=turn.emitter,
        commands=services.commands,
        approvals=services.approvals,
        mcp=services.mcp,
        diffs=diffs,
        clock=services.sources.clock,
        new_id=services.sources.new_id,
        notices=state.notices,
        telemetry=services.reports.telemetry,
    )


def tool_settings(settings: Settings) -> TurnSettings:
    return TurnSettings(
        settings.cwd,
        settings.approval_policy,
        settings.sandbox_policy,
        settings.granular,
        settings.mode.kind,
    )
