"""A turn's parts without a server: a real outbox over a file, a real model client over scripted HTTP, one tool."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from app_server.engine.context.history import ConversationHistory
from app_server.engine.hooks.turn_hooks import NO_TURN_HOOKS
from app_server.engine.model.prompt import FunctionTool, Prompt, ToolSpec
from app_server.engine.storage.rollout_names import new_rollout_path
from app_server.engine.storage.writer import RolloutWriter
from app_server.engine.support.engine_errors import CoreError, ModelError
from app_server.engine.telemetry.telemetry_events import NO_TELEMETRY
from app_server.engine.tools.runtime import ToolRuntime
from app_server.engine.tools.tool_base import ToolCall, ToolContext, ToolOutput, text_output
from app_server.engine.turn.emitter import TurnEmitter
from app_server.engine.turn.loop import AutoCompaction, TurnLoop, TurnStrategy
from app_server.engine.turn.model_call import ModelCall
from app_server.engine.turn.outbox import Outbox, Transcript
from app_server.engine.turn.stream_assembler import ReplyAssembler
from app_server.engine.turn.token_counts import TokenCounts
from app_server.engine.turn.turn_items import TurnInput
from app_server_protocol.encoding import Json
from app_server_protocol.engine.events import EngineEvent, SessionEvent, TurnKind
from app_server_protocol.ids import ConversationId
from app_server_protocol.policy import AskForApproval, ReadOnly, ReasoningSummary
from app_server_protocol.responses import ResponseItem
from app_server_protocol.rollout import SessionMetaLine, TurnContextItem
from tests.engine.model.scripted import SETTINGS, ScriptedAnswer, ScriptedHttp, client_for

CONVERSATION = ConversationId("01a1fc2e-450f-7ed0-9b52-64722a96c4dc")
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@dataclass
class NoteTool:
    """Tool that counts its runs, and waits if a test holds it."""

    name: str = "note"
    parallel: bool = False
    ran: list[str] = field(default_factory=list)
    hold: Callable[[], Awaitable[None]] | None = None

    def spec(self) -> ToolSpec:
        return FunctionTool(name=self.name, description="", parameters={"type": "object"})

    async def invoke(self, call: ToolCall, turn: ToolContext) -> ToolOutput:
        self.ran.append(call.call_id)
        if self.hold is not None:
            await self.hold()
        return text_output(f"noted {call.call_id}")


class OnlyAClock:
    """Minimal turn for the runtime."""

    telemetry = NO_TELEMETRY
    commands = SimpleNamespace(terminals=SimpleNamespace(names=lambda item_id: False))
    """Commands without an open terminal."""
    sources = SimpleNamespace(clock=lambda: 0.0)
    hooks = NO_TURN_HOOKS


class AmpleRoom:
    """Context window without a limit."""

    may_try = False

    def expected(self) -> int | None:
        return None

    def estimate(self, more: Sequence[ResponseItem] = ()) -> int:
        return 0

    def fits(self, more: Sequence[ResponseItem] = ()) -> bool:
        return True

    def gains(self, *, is_full: bool = False) -> bool:
        return True

    def too_small(self, words: Sequence[ResponseItem] = ()) -> CoreError:
        return CoreError("too small")

    def learn(self, estimated: int) -> None:
        """Learn nothing."""

    def explain_error(self, error: ModelError, estimated: int) -> ModelError:
        return error


class OnlyAPrompt(TurnStrategy):
    """Turn that does nothing but send requests."""

    kind = TurnKind.REGULAR

    def __init__(self, take_input: Callable[[], list[TurnInput]] = list) -> None:
        self._take_input = take_input

    def take_input(self) -> list[TurnInput]:
        return self._take_input()

    def has_steered(self) -> bool:
        return False

    def prompt(self, items: Sequence[ResponseItem]) -> Prompt:
        return Prompt(instructions="Be useful.", input=items)

    async def prepare(self) -> None:
        pass


def kind(event: EngineEvent) -> str:
    """Return the kind of an event: `TurnStarted`, `ItemCompleted UserMessage` for items, the type for notices."""
    item = getattr(event, "item", None)
    name = getattr(event, "type", type(event).__name__)
    return f"{name} {type(item).__name__}" if item is not None and name != "raw_response_item" else str(name)


@dataclass
class Bench:
    outbox: Outbox
    http: ScriptedHttp
    history: ConversationHistory = field(default_factory=ConversationHistory)
    tokens: TokenCounts = field(default_factory=TokenCounts)
    tool: NoteTool = field(default_factory=NoteTool)
    pending_input: list[TurnInput] = field(default_factory=list)
    emitter: TurnEmitter = field(init=False)
    ids: Iterator[int] = field(default_factory=lambda: iter(range(1000)))
    compacted: int = 0
    compaction_fails: bool = False

    def __post_init__(self) -> None:
        self.emitter = TurnEmitter(self.outbox, "7", "turn-7", lambda: NOW.timestamp())

    def answers(self, *answers: ScriptedAnswer) -> None:
        self.http.outcomes.extend(answers)

    def model_call(self, *, retries: int = 0, window: int | None = None, tools: bool = True) -> ModelCall:
        return ModelCall(
            emitter=self.emitter,
            model=client_for(self.http, stream_max_retries=retries),
            settings=SETTINGS,
            outbox=self.outbox,
            transcript=Transcript(self.history, self.outbox),
            tokens=self.tokens,
            context_window=window,
            context_line=TurnContextItem(
                cwd="/w",
                approval_policy=AskForApproval.NEVER,
                sandbox_policy=ReadOnly(),
                model="some-model",
                effort=None,
                summary=ReasoningSummary.AUTO,
            ),
            assembler=lambda: ReplyAssembler(self.emitter, self.new_id, raw_reasoning=False),
            tools=ToolRuntime({"note": self.tool}, cast("ToolContext", OnlyAClock())) if tools else None,
            clock=lambda: 0.0,
            telemetry=NO_TELEMETRY,
        )

    def loop(self, model_call: ModelCall, *, compact_limit: int | None = None) -> TurnLoop:
        async def compact() -> None:
            self.compacted += 1
            if self.compaction_fails:
                raise CoreError("no summary")
            self.history.replace(self.history.items[-1:])

        return TurnLoop(
            model_call=model_call,
            steps=OnlyAPrompt(self.take_input),
            compaction=None
            if compact_limit is None
            else AutoCompaction(limit=compact_limit, compact=compact, budget=AmpleRoom()),
            new_id=self.new_id,
        )

    def prompt(self) -> Prompt:
        return OnlyAPrompt().prompt(self.history.for_prompt())

    def take_input(self) -> list[TurnInput]:
        taken, self.pending_input = self.pending_input, []
        return taken

    def new_id(self) -> str:
        return f"id-{next(self.ids)}"

    async def events(self) -> list[SessionEvent]:
        """Return the events that were emitted since the last call."""
        self.outbox.store()
        return [self.outbox.released.take() for _ in range(len(self.outbox.released))]

    async def kinds(self) -> list[str]:
        return [kind(event.event) for event in await self.events()]

    def inputs(self, request: int) -> list[Json]:
        return list(self.http.body(request)["input"])


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    meta = SessionMetaLine(id=CONVERSATION, timestamp="", cwd="/w", originator="tests", cli_version="0")
    path = new_rollout_path(tmp_path, NOW, CONVERSATION)
    writer = RolloutWriter.create(path, lambda: NOW, [meta])
    yield Bench(Outbox(writer), ScriptedHttp())
    writer.close()
