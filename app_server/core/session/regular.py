"""The task that most turns are: the user said something, the agent works on it until it has answered."""

from __future__ import annotations

from collections.abc import Sequence

import anyio

from app_server.core.context.compacted_history import message_text
from app_server.core.errors import CoreError
from app_server.core.model.prompt import Prompt, ToolSpec
from app_server.core.patch.turn_diff import TurnDiffTracker
from app_server.core.session.compaction import Compactor
from app_server.core.session.model_calls import shape_of, visible_call
from app_server.core.session.output_schema import check_schema
from app_server.core.session.services import Services
from app_server.core.session.snapshots import TurnSnapshot
from app_server.core.session.state import SessionState
from app_server.core.session.tasks import ActiveTask
from app_server.core.threads import run_in_thread
from app_server.core.tools.contract import ApprovalServices, CommandServices, Tool, ToolTurn, TurnSettings
from app_server.core.tools.registry import build_tools
from app_server.core.tools.runtime import ToolRuntime
from app_server.core.turn.loop import TurnLoop
from app_server.core.turn.settings import Turn
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

    def __init__(self, services: Services, state: SessionState, turn: Turn, words: UserWords) -> None:
        self._services, self._state, self._turn = services, state, turn
        self._shape = shape_of(services, turn)
        self._opening, self._words = words, [words]
        self._loop: TurnLoop | None = None
        transcript = StoredTranscript(state.history, services.outbox)
        self._snapshot = TurnSnapshot(services, state, turn, transcript)
        self._transcript = self._snapshot.ahead_of_calls(transcript)

    async def run(self, active: ActiveTask) -> str | None:
        await check_schema(self._turn.output_schema)
        with anyio.move_on_after(SERVERS_HEAD_START):
            await self._services.mcp.ready()
        async with anyio.create_task_group() as side:
            side.start_soon(self._snapshot.take, name="snapshot")
            loop = self._loop = self._turn_loop(active)
            try:
                last = await loop.run(self._opening)
            except CoreError:
                await self._snapshot.record()
                raise
            await self._snapshot.record()
        texts = [message_text(words.message) for words in self._words]
        self._services.turn_completed(self._turn.operation_id, texts, last)
        return last

    def interrupted(self) -> None:
        self._snapshot.record_taken()
        if self._loop is not None:
            self._loop.interrupted()

    def _turn_loop(self, active: ActiveTask) -> TurnLoop:
        services, turn, shape = self._services, self._turn, self._shape
        diffs = TurnDiffTracker()
        tool_turn = tool_turn_of(services, self._state, turn, diffs)
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
            tool_set = build_tools(services.config, shape.family, services.mcp)
            tools.update(tool_set.by_name())
            specs.extend(tool_set.specs())

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
            new_id=services.new_id,
        )


def tool_turn_of(services: Services, state: SessionState, turn: Turn, diffs: TurnDiffTracker) -> ToolTurn:
    """The services of this turn for its tools."""
    settings = turn.settings
    return ToolTurn(
        id=turn.operation_id,
        settings=TurnSettings(settings.cwd, settings.approval_policy, settings.sandbox_policy),
        config=services.config,
        items=turn.emitter,
        commands=CommandServices(
            runner=services.runner,
            roots=services.roots,
            terminals=services.terminals,
            shell_path=services.instructions.shell_path,
            exposed_folders=state.exposed_folders,
        ),
        approvals=ApprovalServices(services.broker, services.approved, services.outbox.flush),
        mcp=services.mcp,
        diffs=diffs,
        clock=services.clock,
        new_id=services.new_id,
        notices=state.notices,
        telemetry=services.telemetry,
    )
