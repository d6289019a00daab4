"""Prompts of one session and the turns that they begin or join: each prompt is answered when its turn is over.

Owns which prompt waits for which turn, cancelling, and the tokens that a turn has used.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import anyio
import anyio.lowlevel
import msgspec
from msgspec import Struct

from app_server.engine.session.session_commands import ClientTask, Interrupt, StartTurn, TurnNotSteerable
from app_server.engine.support.engine_errors import CoreError
from app_server.engine.turn.turn_items import TurnInput
from app_server.server.apis.acp.acp_errors import turn_failure
from app_server.server.apis.contexts import ConversationContext
from app_server_protocol.acp.sessions import PromptResponse, PromptUsage, StopReason
from app_server_protocol.engine.errors import ErrorClass, TurnError
from app_server_protocol.engine.events import SessionEvent, TurnEnded, TurnStarted, TurnStatus
from app_server_protocol.engine.notices import TokenUsageUpdated, UndoCompleted
from app_server_protocol.engine.token_usage import TokenUsage


class PendingPrompt(Struct):
    """One prompt that is not answered yet."""

    given_up: anyio.Event = msgspec.field(default_factory=anyio.Event)

    @property
    def cancelled(self) -> bool:
        return self.given_up.is_set()


class AwaitedTurn(Struct):
    """A turn that prompts wait for. When it is over, `ended` is None if the session ended before the turn did."""

    over: anyio.Event = msgspec.field(default_factory=anyio.Event)
    ended: TurnEnded | None = None
    cancelled: bool = False
    last: PendingPrompt | None = None
    """Prompt that began the turn or joined it last."""
    usage: PromptUsage | None = None
    """Tokens of the turn's requests; None if none has told them."""
    operation: str = ""
    """Id of the operation that begins it, if that may be refused."""
    refused: bool = False
    """Whether it has not begun, because another client's turn ran."""


def _stop_of_failure(error: TurnError | None) -> StopReason:
    """Return the reason for which a turn that failed has stopped. Raises RpcError if it is an error of the prompt."""
    match None if error is None else error.error_class:
        case ErrorClass.CONTEXT_WINDOW_EXCEEDED | ErrorClass.OUTPUT_LIMIT:
            return StopReason.MAX_TOKENS
        case ErrorClass.REFUSED:
            return StopReason.REFUSAL
        case _:
            raise turn_failure(error)


class PromptTurns:
    def __init__(self, context: ConversationContext) -> None:
        """Begin without prompts."""
        self._context, self._session = context, context.session
        self._tickets: list[PendingPrompt] = []
        self._awaited: dict[str, AwaitedTurn] = {}
        self._gone = False
        self.order = anyio.Lock()
        """Lock that is held while input is prepared and submitted, so that prompts keep their order."""
        known = context.session.facts.usage
        self._used = TokenUsage() if known is None else known.total_token_usage
        """Tokens of the session's requests so far."""

    # --- prompts
    @contextmanager
    def prompting(self) -> Iterator[PendingPrompt]:
        ticket = PendingPrompt()
        self._tickets.append(ticket)
        try:
            yield ticket
        finally:
            self._tickets.remove(ticket)

    async def submit(self, ticket: PendingPrompt, turn_input: TurnInput) -> AwaitedTurn | None:
        """Begin a turn with this input, or join the running turn; None if the prompt was cancelled before."""
        while not ticket.cancelled and not self._gone:
            try:
                command = StartTurn(turn_input=turn_input)
                started = self._session.turns.start(command, self._context.turn_caller())
            except TurnNotSteerable:
                await self._idle()
                continue
            return self._await(started.turn, ticket)
        return None

    def steer(self, turn_input: TurnInput) -> bool:
        """Add input to the running turn; return False if no turn runs that accepts input."""
        turn_id = self._session.turns.current_id
        if turn_id is None or not self._tickets:
            return False
        try:
            self._session.turns.steer(turn_id, turn_input)
        except CoreError:
            return False
        return True

    async def operate(self, ticket: PendingPrompt, command: ClientTask) -> AwaitedTurn | None:
        """Begin a turn of another kind, once no other turn runs."""
        while await self.idle(ticket):
            async with self.order:  # a command that goes back may hold it
                if self._awaited or self._session.running:
                    continue
                begun = self._session.begin(command, self._context.turn_caller())
                turn = self._await(begun.turn, ticket)
                turn.operation = begun.operation
                return turn
        return None

    async def idle(self, ticket: PendingPrompt) -> bool:
        """Wait until no turn runs. Return False if the prompt was cancelled before."""
        while not ticket.cancelled and not self._gone:
            if not self._awaited and not self._session.running:
                return True
            await self._idle()
        return False

    async def end_of(self, ticket: PendingPrompt, turn: AwaitedTurn | None) -> PromptResponse:
        """Return the answer to a prompt, once its turn is over; None stands for a prompt that was cancelled before.
        Raises RpcError if the turn failed.
        """
        if turn is None:
            return PromptResponse(stop_reason=StopReason.CANCELLED)
        await turn.over.wait()
        if turn.refused:
            return PromptResponse(stop_reason=StopReason.END_TURN)
        ended = turn.ended
        if turn.cancelled or ended is None or ended.status is TurnStatus.INTERRUPTED:
            reason = StopReason.CANCELLED  # also if it failed, or completed, while it was being cancelled
        elif ended.status is TurnStatus.COMPLETED:
            reason = StopReason.END_TURN
        else:
            reason = _stop_of_failure(ended.error)
        return PromptResponse(stop_reason=reason, usage=turn.usage if turn.last is ticket else None)

    def awaits(self, turn_id: str | None) -> bool:
        """Return whether a prompt waits for the end of this turn."""
        return turn_id in self._awaited

    def cancel(self) -> None:
        """Cancel every prompt, and the running turn."""
        for ticket in self._tickets:
            ticket.given_up.set()
        for turn in self._awaited.values():
            turn.cancelled = True
        if self._tickets or self._session.running:
            try:
                self._session.do(Interrupt())
            except CoreError:
                pass  # the session has ended, and the turn with it

    def go_on_in(self, context: ConversationContext) -> None:
        """Begin later turns in this conversation, which has replaced the one before."""
        self._context, self._session = context, context.session

    # --- the end of turns
    def observe(self, event: SessionEvent) -> None:
        turn_id = event.turn_id or ""
        if isinstance(event.event, TokenUsageUpdated) and event.event.info is not None:
            self._count(event.event.info.total_token_usage, self._awaited.get(turn_id))
            return
        match event.event, self._awaited.get(turn_id):
            case TurnStarted(), AwaitedTurn(cancelled=True):
                self.cancel()  # the prompt waited for another turn, which the interrupt ended
            case TurnEnded() as ended, AwaitedTurn() as turn:
                del self._awaited[turn_id]
                turn.ended = ended
                turn.over.set()
            case UndoCompleted(), None if event.turn_id is None:
                self._refused(event.operation_id)
            case _:
                pass

    def _refused(self, operation: str) -> None:
        """Answer the prompt whose operation began no turn. The event says why."""
        for id, turn in list(self._awaited.items()):
            if turn.operation == operation:
                del self._awaited[id]
                turn.refused = True
                turn.over.set()

    def _count(self, total: TokenUsage, turn: AwaitedTurn | None) -> None:
        """Count what a request of a turn has used. A smaller total than the one before does not come from a request: it
        says that the context is full.
        """
        before, self._used = self._used, total
        if turn is None or total == before or total.input_tokens < before.input_tokens:
            return
        so_far = turn.usage or PromptUsage()
        cached = total.cached_input_tokens - before.cached_input_tokens
        thought = total.reasoning_output_tokens - before.reasoning_output_tokens
        turn.usage = PromptUsage(
            total_tokens=so_far.total_tokens + total.total_tokens - before.total_tokens,
            input_tokens=so_far.input_tokens + total.input_tokens - before.input_tokens - cached,
            output_tokens=so_far.output_tokens + total.output_tokens - before.output_tokens,
            thought_tokens=so_far.thought_tokens + thought,
            cached_read_tokens=so_far.cached_read_tokens + cached,
        )

    def session_ended(self) -> None:
        self._gone = True
        for ticket in self._tickets:
            ticket.given_up.set()
        for turn in self._awaited.values():
            turn.over.set()
        self._awaited.clear()

    def _await(self, turn_id: str, ticket: PendingPrompt) -> AwaitedTurn:
        turn = self._awaited.setdefault(turn_id, AwaitedTurn())
        turn.last = ticket
        return turn

    async def _idle(self) -> None:
        """Wait until the running operations have ended."""
        if self._session.running:
            await self._session.settled()
        elif self._awaited:
            await next(iter(self._awaited.values())).over.wait()
        else:
            await anyio.lowlevel.checkpoint()  # an operation that another client asked for is about to begin
