"""The turn loop on one page: ask the model, run its calls, ask again, until it calls nothing.

1. The turn starts; the user's input is its first item.
2. Input that arrived meanwhile joins the conversation, before the next request.
3. One request; its items and the outputs of its calls are recorded in the model's order.
4. If the context has grown over the limit, the history is compacted, once, and the model is asked again; also if the
   compaction failed, which is reported as an error. In turns of APIs that follow turns, an answer ends the turn first,
   and the next one begins with the compaction.
5. The turn ends when the model called nothing and no input waits that this turn must answer. Other input that came
   during that last reply begins the next turn.

Hooks may keep the user's input from the model, let the turn go on, or end it
(`LoopHooks`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, Protocol

import msgspec
from msgspec import Struct

from app_server.engine.model.model_errors import incomplete_response
from app_server.engine.model.prompt import Prompt
from app_server.engine.support.engine_errors import CoreError, ModelError
from app_server.engine.turn.loop_hooks import LoopHooks, hooked_request
from app_server.engine.turn.model_call import ModelCall, ModelReply
from app_server.engine.turn.turn_items import TurnInput, last_assistant_text
from app_server_protocol.engine.events import TurnKind
from app_server_protocol.engine.items import Item
from app_server_protocol.engine.notices import ErrorNotice, TurnDiffUpdated, WarningNotice
from app_server_protocol.responses import ResponseItem

MOST_PAUSES: Final = 3
"""Maximum number of paused answers in one turn after which the provider is asked to continue."""


class ContextStillFull(CoreError):
    """A compaction did not bring the conversation below its limit."""

    def __init__(self, limit: int, tokens: int | None) -> None:
        super().__init__(
            f"Conversation is still above the token limit after automatic summarization (limit {limit}, current "
            f"{'unknown' if tokens is None else tokens}). Please start a new session or trim your input."
        )


class TurnStrategy(Protocol):
    """The steps of one kind of turn in the loop."""

    kind: TurnKind
    hooks: LoopHooks | None = None
    """Hooks of the turn; None if it has none."""

    def prompt(self, items: Sequence[ResponseItem]) -> Prompt: ...

    async def prepare(self) -> None:
        """Determine the tools that the model is offered, before the first request."""
        ...

    def take_input(self) -> list[TurnInput]:
        """Return the inputs of the user since the last call."""
        ...

    def has_steered(self) -> bool:
        """Return whether input waits that this turn must answer. If not, the turn accepts no more."""
        ...

    @property
    def is_owed(self) -> bool:
        """Whether input waits that this turn must answer."""
        return False

    def after_reply(self, answer: Sequence[ResponseItem], *, calls: bool) -> None:
        """Handle a recorded answer; the default does nothing. `calls`: the answer called tools."""
        return

    async def diff(self) -> str | None:
        """Return the changes of files by this turn, in git's format: "" if later patches reverted all changes; None if
        the turn applied no patch, or if this kind of turn applies none.
        """
        return None


class WindowBudget(Protocol):
    """The room in the context window for the requests of one turn."""

    def estimate(self, more: Sequence[ResponseItem] = ()) -> int:
        """Return the estimated tokens of the next request, `more` included."""
        ...

    def fits(self, more: Sequence[ResponseItem] = ()) -> bool:
        """Return whether the next request, with `more`, leaves room for an answer."""
        ...

    def gains(self, *, is_full: bool = False) -> bool:
        """Return whether a compaction frees enough to be worth its request. `is_full`: the provider has refused the
        conversation as too long, so the estimates of its size do not count.
        """
        ...

    @property
    def may_try(self) -> bool:
        """Whether a request that does not fit is still worth a try."""
        ...

    def too_small(self, turn_input: Sequence[ResponseItem] = ()) -> CoreError:
        """Return the error of a request that does not fit even now."""
        ...

    def expected(self) -> int | None:
        """Return the estimated tokens of the next request; None if the provider's count of it would correct neither the
        estimates nor the context window.
        """
        ...

    def learn(self, estimated: int) -> None:
        """Compare the provider's count of a request with its estimated number of tokens."""
        ...

    def explain_error(self, error: ModelError, estimated: int) -> ModelError:
        """Return the error of a failed request. It may name the context window as the reason, if the request was too
        long by its estimated tokens.
        """
        ...


class AutoCompaction(Struct, frozen=True, kw_only=True):
    """The limit at which the turn compacts the history, and the way in which it does."""

    limit: int
    """Size of the context that triggers a compaction, in tokens."""
    compact: Callable[[], Awaitable[None]]
    budget: WindowBudget
    at_begin: bool = False
    """Whether a context over the limit is compacted at the start of the next turn, instead of after the model's answer
    in the same turn. A context that the provider refused as too long is always compacted at the start of the next turn.
    """


class TurnLoop(Struct, kw_only=True, eq=False):
    """One turn of one conversation."""

    model_call: ModelCall
    steps: TurnStrategy
    compaction: AutoCompaction | None
    """Settings of the compaction; None if the history is not compacted."""
    new_id: Callable[[], str]
    show_user_message: bool = True
    first_item: Item | None = None
    """Item that is shown as soon as the turn has started; None if there is none."""
    _compacted: bool = False
    _was_cut: bool = False
    """Whether the output limit cut off a call of the last answer."""
    _opening: TurnInput | None = None
    """Input that begins the turn; None once it is recorded."""
    _is_admitted: bool = False
    """Whether the model may read that input."""
    _joined: list[TurnInput] = msgspec.field(default_factory=list)
    """Inputs that joined the turn, and that are about to be admitted."""

    async def run(self, opening: TurnInput) -> str | None:
        """Run the turn, and return the assistant's last message. Raises ModelError or ContextStillFull."""
        self._opening = opening
        self.model_call.emitter.turn_started(self.steps.kind, self.model_call.context_window)
        if self.first_item is not None:
            self.model_call.emitter.show(self.first_item)
        hooks = self.steps.hooks
        if hooks is not None:
            admitted = await self._admit_opening(hooks, opening)
            if admitted is None:
                return None
            opening = admitted
        at_begin = self.compaction is not None and self.compaction.at_begin
        if at_begin or self.model_call.tokens.context_is_full:
            await self._made_room()
        await self._fit(opening)
        self._record_opening(opening)
        await self.steps.prepare()
        pauses, last, waits_for_input, history = 0, None, False, self.model_call.transcript.history
        ask = self.model_call.request if hooks is None else partial(hooked_request, self.model_call, hooks)
        while True:
            self._joined += self.steps.take_input()
            if await self._must_end(waits_for_input=waits_for_input):
                return last
            waits_for_input = False
            await self._fit()
            estimated = None if self.compaction is None else self.compaction.budget.expected()
            reply = await ask(
                lambda: self.steps.prompt(history.for_prompt()),
                keeps_messages=at_begin,
                explain=self._explanation(estimated),
            )
            self._learn(estimated)
            if (diff := await self.steps.diff()) is not None:
                self.model_call.emitter.emit(TurnDiffUpdated(unified_diff=diff))
            items = self.model_call.hand_over(reply)
            self.model_call.transcript.record(self.model_call.emitter, items)
            size = len(history)
            self.steps.after_reply(items, calls=reply.calls)
            self._check_cut(reply)
            last = last_assistant_text(items)
            if reply.paused and pauses < MOST_PAUSES:
                pauses += 1
                continue
            if at_begin and not reply.calls and await self._may_end(last):
                return last
            if await self._made_room():
                continue
            if not at_begin and not reply.calls and await self._may_end(last):
                return last
            waits_for_input = not reply.calls and len(history) == size

    def abandon(self) -> None:
        """Record the results so far of an interrupted turn; called once its tasks have ended."""
        self.model_call.abandon()
        # Input that was not sent yet: the request of the next turn has it.
        guarded = self.steps.hooks is not None and self.steps.hooks.guards_input
        if self._opening is not None:
            if self._is_admitted or not guarded:
                self._record_opening(self._opening)
            else:
                self._show(self._opening, announced=True)
        keep = self._show if guarded else self._record_words
        for turn_input in (*self._joined, *self.steps.take_input()):
            keep(turn_input, announced=False)

    async def _admit_opening(self, hooks: LoopHooks, opening: TurnInput) -> TurnInput | None:
        """Return the input that begins the turn as the model reads it. If the model must not read it, it is shown, and
        the turn ends.
        """
        admitted = self._opening = await hooks.admit(opening)
        self._is_admitted = True
        if admitted is None:
            self._show(opening, announced=True)
        return admitted

    async def _must_end(self, *, waits_for_input: bool) -> bool:
        """Record the inputs that joined the turn and that the model may read. Return whether no request follows: a hook
        ended the turn, or it went on only for inputs of which the model may read none.
        """
        hooks, only_refused = self.steps.hooks, bool(self._joined)
        while self._joined:
            admitted = self._joined[0] if hooks is None else await hooks.admit(self._joined[0])
            turn_input = self._joined.pop(0)
            if admitted is None:
                self._show(turn_input, announced=False)
            else:
                only_refused = False
                self._record_words(admitted, announced=False)
        return hooks is not None and (hooks.stopped or (only_refused and waits_for_input))

    async def _may_end(self, last: str | None) -> bool:
        """Return whether the turn may end after an answer without calls. `last`: its text; None if it has none."""
        hooks = self.steps.hooks
        if hooks is not None and not self.steps.is_owed and await hooks.goes_on(last):
            return False
        return not self.steps.has_steered()

    def _check_cut(self, reply: ModelReply) -> None:
        """Raise ModelError for a second answer in a row whose call the output limit cut off, since the next one would
        be cut, too.
        """
        if reply.cut_by is not None and self._was_cut:
            raise incomplete_response(reply.cut_by)
        self._was_cut = reply.cut_by is not None

    def _explanation(self, estimated: int | None) -> Callable[[ModelError], ModelError] | None:
        """Return the function that explains a failure by the size of the request; None if the size is not known."""
        if self.compaction is None or estimated is None:
            return None
        return partial(self.compaction.budget.explain_error, estimated=estimated)

    def _learn(self, estimated: int | None) -> None:
        if self.compaction is not None and estimated is not None:
            self.compaction.budget.learn(estimated)

    async def _fit(self, turn_input: TurnInput | None = None) -> None:
        """Compact if the next request would leave no room for an answer in a small window. Raise the error with the
        figures if it would not fit even then, unless the window is a guess. `words`, which are not recorded yet, then
        stay out of the history.
        """
        if self.compaction is None:
            return
        budget, more = self.compaction.budget, () if turn_input is None else turn_input.messages()
        if budget.fits(more):
            return
        if not self._compacted and budget.gains():
            await self._compact(self.compaction)
        if not budget.fits(more) and not budget.may_try:
            if turn_input is not None:
                self._opening = None
                self._show(turn_input, announced=True)
            raise budget.too_small(more)

    def _record_opening(self, opening: TurnInput) -> None:
        self._record_words(opening, announced=True)
        self._opening = None

    def _record_words(self, turn_input: TurnInput, *, announced: bool) -> None:
        """Record and show an input. `announced` False: the input joins the turn, which is not reported to all
        clients.
        """
        self.model_call.transcript.record(self.model_call.emitter, turn_input.messages())
        self._show(turn_input, announced=announced)

    def _show(self, turn_input: TurnInput, *, announced: bool) -> None:
        for notice in turn_input.notices:
            self.model_call.emitter.emit(WarningNotice(message=notice))
        if self.show_user_message and turn_input.is_shown:
            self.model_call.emitter.show(turn_input.item(self.new_id()), announced=announced)

    async def _made_room(self) -> bool:
        """Compact if the limit is reached. Return whether a compaction was done or has failed: the model is then asked
        again.
        """
        compaction, counts = self.compaction, self.model_call.tokens
        if compaction is None or (self.steps.hooks is not None and self.steps.hooks.stopped):
            return False
        tokens = compaction.budget.estimate() if counts.uncounted else counts.in_context
        over = tokens is not None and tokens >= compaction.limit
        if not (over or counts.context_is_full):
            self._compacted = False
            return False
        if not compaction.budget.gains(is_full=counts.context_is_full):
            return False  # the size of the next request is still checked
        if self._compacted:
            raise ContextStillFull(compaction.limit, tokens)
        await self._compact(compaction)
        return True

    async def _compact(self, compaction: AutoCompaction) -> None:
        self._compacted = True
        try:
            await compaction.compact()
        except CoreError as error:
            # The history is unchanged, and may still fit: the results of the turn so far are not discarded.
            self.model_call.emitter.emit(ErrorNotice(message=str(error)))
