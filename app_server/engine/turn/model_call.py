"""One request to the model, retried until it is answered or has finally failed: the stream becomes items, and calls run
meanwhile.

Tools start while the stream is still read. If the stream breaks, running calls are completed and recorded with their
outputs, so that the next attempt continues from them and no call runs twice.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import anyio
import msgspec
from anyio.abc import TaskGroup
from msgspec import Struct

from app_server.engine.model.model_client import ModelClient
from app_server.engine.model.model_errors import UsageLimitReached
from app_server.engine.model.prompt import (
    Completed,
    Created,
    ModelEvent,
    OutputItemAdded,
    OutputItemDone,
    OutputTextDelta,
    Prompt,
    RateLimits,
    ReasoningContentDelta,
    ReasoningSummaryPartAdded,
    ReasoningSummaryTextDelta,
    RequestSettings,
    Rerouted,
)
from app_server.engine.support.engine_errors import ContextWindowExceeded, ModelError, StreamDisconnected
from app_server.engine.telemetry.telemetry_events import NO_TELEMETRY, ConversationTelemetry
from app_server.engine.tools.runtime import CallRun, RefusedCalls, ToolRuntime
from app_server.engine.turn.emitter import TurnEmitter, turn_error
from app_server.engine.turn.outbox import Outbox, Transcript
from app_server.engine.turn.stream_assembler import ReplyAssembler
from app_server.engine.turn.token_counts import TokenCounts
from app_server_protocol import responses
from app_server_protocol.engine.events import AttemptFailed
from app_server_protocol.engine.notices import TokenUsageUpdated
from app_server_protocol.rollout import TurnContextItem

log = logging.getLogger(__name__)


EVENT_KINDS: Mapping[type, str] = {
    Created: "response.created",
    OutputItemAdded: "response.output_item.added",
    OutputItemDone: "response.output_item.done",
    OutputTextDelta: "response.output_text.delta",
    ReasoningSummaryTextDelta: "response.reasoning_summary_text.delta",
    ReasoningSummaryPartAdded: "response.reasoning_summary_part.added",
    ReasoningContentDelta: "response.reasoning_text.delta",
    Completed: "response.completed",
}
"""Names of the events in the Responses API, for telemetry."""


CUT_OFF: Final = RefusedCalls("The call was cut off by the output limit and was not run.")
"""Output of a call that the limit of the answer has cut off."""


class EmptyAnswer(ModelError):
    """The model ended its answer without text or a call, and no retry is left."""

    def __init__(self) -> None:
        super().__init__("The model ended its answer without text or a call.")


def _says_something(item: responses.ResponseItem | CallRun) -> bool:
    if not isinstance(item, responses.MessageItem):
        return False
    return any(isinstance(part, responses.OutputText) and part.text.strip() for part in item.content)


class ModelReply(Struct):
    """The parts of one attempt's reply that have arrived so far."""

    entries: list[responses.ResponseItem | CallRun] = msgspec.field(default_factory=list)
    completed: bool = False
    paused: bool = False
    """Whether the provider paused and wants to be asked to continue."""
    cut_by: str | None = None
    """The provider's name of the limit that cut off the last call; None if the answer is whole."""

    @property
    def calls(self) -> bool:
        """Whether the model waits for outputs."""
        return any(isinstance(entry, CallRun) for entry in self.entries)

    @property
    def is_empty(self) -> bool:
        """Whether the reply has neither text nor a call. Thoughts alone count as empty."""
        return not any(isinstance(entry, CallRun) or _says_something(entry) for entry in self.entries)

    def items(self, now: float) -> list[responses.ResponseItem]:
        """Return all items in the model's order, each call followed by its output."""
        out: list[responses.ResponseItem] = []
        for entry in self.entries:
            out += entry.items(now) if isinstance(entry, CallRun) else [entry]
        return out

    def up_to_last_call(self, *, or_message: bool) -> ModelReply:
        """Return the reply without the part after the last call, which the next attempt generates again. `or_message`:
        keep the last whole message too, and everything before it.
        """
        kept = (CallRun, responses.MessageItem) if or_message else CallRun
        last = max((n for n, entry in enumerate(self.entries) if isinstance(entry, kept)), default=-1)
        return ModelReply(self.entries[: last + 1])


class ModelCall(Struct, frozen=True, kw_only=True, eq=False):
    """Makes requests to the model within one turn."""

    emitter: TurnEmitter
    model: ModelClient
    settings: RequestSettings
    outbox: Outbox
    transcript: Transcript
    tokens: TokenCounts
    context_window: int | None
    context_line: TurnContextItem
    assembler: Callable[[], ReplyAssembler]
    tools: ToolRuntime | RefusedCalls | None
    """Runs the calls of the model; None if calls are not run."""
    clock: Callable[[], float]
    telemetry: ConversationTelemetry
    _current: list[ModelReply] = msgspec.field(default_factory=list)
    """The current attempt, or an answer that is not recorded yet: an interrupted turn records its parts."""

    async def request(
        self,
        prompt: Callable[[], Prompt],
        *,
        keeps_messages: bool = False,
        explain: Callable[[ModelError], ModelError] | None = None,
    ) -> ModelReply:
        """Make a request, with retries, until it is answered; `prompt` is called for each attempt. Raises ModelError
        when it gives up; the history then has the calls of the last attempt and, with `keeps_messages`, its whole
        messages. `explain` returns the cause of a failure that occurred twice; None if no explanation is known.
        """
        retries, most = 0, self.model.provider.stream_max_retries
        asked_again = False
        while True:
            self.outbox.record(self.context_line)
            try:
                reply = await self._stream(prompt())
                if not self._lacks_answer(reply):
                    return reply
                if asked_again or most == 0:
                    raise EmptyAnswer
                asked_again = True
                log.info("the answer of turn %s is empty; the model is asked once more", self.emitter.turn_id)
                continue
            except ModelError as failed:
                is_first = retries < min(most, 1)
                error = failed if explain is None or is_first else explain(failed)
                final = not error.retryable or retries >= most
                self._keep_done(messages=final and keeps_messages)
                self._count(error)
                if final:
                    raise error from failed.__cause__
                retries += 1
                log.info("attempt %d of turn %s failed: %s", retries, self.emitter.turn_id, error)
                self.emitter.cut_text()
                self.emitter.emit(AttemptFailed(turn_error(error), retries, most))
                delay = error.retry_after
            await anyio.sleep(self.model.retry_delay(retries) if delay is None else delay)

    def _lacks_answer(self, reply: ModelReply) -> bool:
        """Return whether the turn would end with an empty answer, which small models sometimes give."""
        runs_tools = isinstance(self.tools, ToolRuntime)
        return self.settings.wants_answer and runs_tools and reply.is_empty and not reply.paused

    def hand_over(self, reply: ModelReply) -> list[responses.ResponseItem]:
        """Return the items of an answer to the caller that records them now. Before that, an interrupt records them."""
        self._current.clear()
        return reply.items(self.clock())

    def abandon(self) -> None:
        """Record the results of an interrupted turn, with the note at unfinished calls that they were aborted."""
        for reply in self._current:
            kept = reply.items(self.clock())
            calls = reply.calls
            self._current.clear()
            self.transcript.record(self.emitter, kept)
            self.transcript.take_back()
            if calls:
                # The settings of the request that would have followed: readers use those of the last such line.
                self.outbox.record(self.context_line)

    async def _stream(self, prompt: Prompt) -> ModelReply:
        """Stream one reply, and wait for the calls that began meanwhile. Raises ModelError."""
        reply, assembler = ModelReply(), self.assembler()
        self._current[:] = [reply]
        reporting, began = self.telemetry is not NO_TELEMETRY, self.clock()
        failure: ModelError | None = None
        async with anyio.create_task_group() as calls:
            try:
                async with self.model.stream(prompt, self.settings) as batches:
                    try:
                        async for batch in batches:
                            if reporting:
                                began = self._report(batch, began)
                            self._take(batch, reply, assembler, calls)
                            if reply.completed:
                                break
                            await self.outbox.released.wait_for_capacity()
                        else:
                            raise StreamDisconnected("stream closed before response.completed")
                    except ModelError as error:
                        self.telemetry.sse_event("", int((self.clock() - began) * 1000), error=str(error))
                        raise
            except ModelError as error:
                failure = error  # the group still waits for the calls that were begun
        if failure is not None:
            raise failure
        return reply

    def _report(self, batch: Sequence[ModelEvent], began: float) -> float:
        """Report a batch to telemetry, and return the time at which the wait for the next one begins."""
        now = self.clock()
        for event in batch:
            if isinstance(event, Completed) and event.usage is not None:
                self.telemetry.response_completed(event.usage)
            else:
                self.telemetry.sse_event(EVENT_KINDS.get(type(event), "other"), int((now - began) * 1000))
        return now

    def _take(
        self, batch: Sequence[ModelEvent], reply: ModelReply, assembler: ReplyAssembler, calls: TaskGroup
    ) -> None:
        for event in batch:
            match event:
                case OutputTextDelta():
                    assembler.text_delta(event)
                case OutputItemDone():
                    self._item(event, reply, calls)
                    assembler.take(event)
                case Created():
                    pass
                case RateLimits():
                    self.tokens.rate_limits = event.snapshot
                    self._emit_tokens(wake=False)
                case Rerouted():
                    self.emitter.rerouted(self.settings.model, event.model)
                case Completed():
                    self.tokens.context_is_full = False
                    self.tokens.uncounted = event.usage is None
                    if event.usage is not None:
                        self.tokens.add(event.usage, self.context_window)
                    self._emit_tokens()
                    reply.completed, reply.paused, reply.cut_by = True, event.paused, event.cut_by
                    return
                case _:
                    assembler.take(event)

    def _item(self, event: OutputItemDone, reply: ModelReply, calls: TaskGroup) -> None:
        item = event.item
        match item:
            case responses.WebSearchCall():
                return  # the provider ran the call; clients see it, and the history does not need it
            case responses.OtherItem() | responses.FunctionCallOutput() | responses.CustomToolCallOutput():
                log.debug("the model sent an item of kind %s, which is not used", item.type)
                return
            case responses.FunctionCall(call_id="") | responses.CustomToolCall(call_id=""):
                item = item.model_copy(
                    update={"call_id": f"call_{self.emitter.operation_id}_{len(reply.entries)}"}
                )
            case _:
                pass
        if isinstance(item, responses.FunctionCall | responses.CustomToolCall | responses.LocalShellCall):
            if self.tools is None:
                return
            tools = CUT_OFF if event.is_cut else self.tools
            reply.entries.append(tools.start(item, calls, self._finished))
        else:
            reply.entries.append(item)
        self.transcript.announce(item)

    def _finished(self, answer: Sequence[responses.ResponseItem]) -> None:
        for item in answer:
            self.transcript.announce(item)

    def _keep_done(self, *, messages: bool) -> None:
        for reply in self._current:
            kept = reply.up_to_last_call(or_message=messages)
            if kept.entries:
                self.transcript.record(self.emitter, kept.items(self.clock()))
        self._current.clear()
        self.transcript.take_back()

    def _count(self, error: ModelError) -> None:
        match error:
            case ContextWindowExceeded():
                self.tokens.context_is_full = True
                if self.context_window is not None:
                    self.tokens.fill(self.context_window)
                    self._emit_tokens()
            case UsageLimitReached() if error.rate_limits is not None:
                self.tokens.rate_limits = error.rate_limits
                self._emit_tokens()
            case _:
                pass

    def _emit_tokens(self, *, wake: bool = True) -> None:
        event = TokenUsageUpdated(info=self.tokens.info, rate_limits=self.tokens.rate_limits)
        self.emitter.emit(event, wake=wake)
