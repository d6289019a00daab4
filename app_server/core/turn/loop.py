"""The turn loop on one page: ask the model, run what it calls, ask again, until it asks for nothing.

1. The turn starts; the user's words are its first item.
2. What the user said meanwhile joins the conversation, ahead of the next request.
3. One request; its items and the outputs of its calls are recorded in the model's order.
4. Where the context has grown over the limit, the history is compacted, once, and the model is asked again; also
   where the compaction failed, which is reported as an error. In turns of APIs that follow turns, an answer ends the
   turn first, and the next one begins with the compaction.
5. The turn ends when the model called nothing and no words are promised to this turn. Other words that came during
   that last reply begin the next turn.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, Protocol

from msgspec import Struct

from app_server.core.errors import CoreError, ModelError
from app_server.core.model.model_errors import incomplete_response
from app_server.core.model.prompt import Prompt
from app_server.core.turn.items import UserWords, last_assistant_text
from app_server.core.turn.model_call import ModelCall, ModelReply
from app_server_protocol.engine.events import TurnKind
from app_server_protocol.events.commands import TurnDiffEvent
from app_server_protocol.events.notices import ErrorEvent, WarningEvent
from app_server_protocol.responses import ResponseItem

MOST_PAUSES: Final = 3
"""Answers of one turn after which a provider is asked on because it paused."""


class ContextStillFull(CoreError):
    """Compacting did not bring the conversation below its limit."""

    def __init__(self, limit: int, tokens: int | None) -> None:
        super().__init__(
            f"Conversation is still above the token limit after automatic summarization (limit {limit}, current "
            f"{'unknown' if tokens is None else tokens}). Please start a new session or trim your input."
        )


class TurnSteps(Protocol):
    """Steps of one kind of turn in the loop."""

    kind: TurnKind

    def prompt(self, items: Sequence[ResponseItem]) -> Prompt: ...

    async def prepare(self) -> None:
        """Find out what the model is offered, before the first request."""
        ...

    def after_reply(self, answer: Sequence[ResponseItem], *, calls: bool) -> None:
        """Note a recorded answer. `calls`: it called tools. Does nothing where a kind does not say otherwise."""
        return

    async def diff(self) -> str | None:
        """Return the change of files by this turn, in git's format: "" where patches took back what they changed; None
        where the turn applied no patch, or no turn of this kind does."""
        return None


class WindowRoom(Protocol):
    """Room in the context window for one turn's requests."""

    def estimate(self, more: Sequence[ResponseItem] = ()) -> int:
        """Return the estimated tokens of the next request."""
        ...

    def fits(self, more: Sequence[ResponseItem] = ()) -> bool:
        """Return whether the next request, with `more`, leaves room for an answer."""
        ...

    def gains(self, *, is_full: bool = False) -> bool:
        """Return whether a compaction frees enough to be worth its request. `is_full`: the provider has refused the
        conversation as too long, so that our estimates of it count for nothing.
        """
        ...

    @property
    def may_try(self) -> bool:
        """Whether a request that does not fit is still worth a try."""
        ...

    def too_small(self, words: Sequence[ResponseItem] = ()) -> CoreError:
        """Return the error of a request that does not fit after all."""
        ...

    @property
    def wants_count(self) -> bool:
        """Whether there is something to learn from the provider's count of the next request."""
        ...

    def learn(self, estimated: int) -> None:
        """Take the provider's count of a request of so many estimated tokens."""
        ...

    def explained(self, error: ModelError, estimated: int) -> ModelError:
        """Return a failure as the window explains it, of a request of so many estimated tokens."""
        ...


class AutoCompaction(Struct, frozen=True, kw_only=True):
    """When the turn compacts the history, and how."""

    limit: int
    """Tokens of the context."""
    compact: Callable[[], Awaitable[None]]
    room: WindowRoom
    at_begin: bool = False
    """A context over the limit is compacted at the next turn's begin, and not by asking on when the model has answered.
    One that the provider refused as too long is always compacted at the next turn's begin."""


class TurnLoop(Struct, kw_only=True, eq=False):
    """One turn of one conversation."""

    model_call: ModelCall
    take_input: Callable[[], list[UserWords]]
    """Returns what the user said since the last call."""
    has_steered: Callable[[], bool]
    """Returns whether words are promised to this turn that the model was not asked with."""
    steps: TurnSteps
    compaction: AutoCompaction | None
    """None: the history is not compacted."""
    new_id: Callable[[], str]
    show_user_message: bool = True
    _compacted: bool = False
    _was_cut: bool = False
    """Whether the output limit cut off a call of the last answer."""
    _opening: UserWords | None = None
    """The words that begin the turn, until they are recorded."""

    async def run(self, opening: UserWords) -> str | None:
        """Returns the last thing the assistant said. Raises ModelError or ContextStillFull."""
        self._opening = opening
        self.model_call.emitter.turn_started(self.steps.kind, self.model_call.context_window)
        at_begin = self.compaction is not None and self.compaction.at_begin
        if at_begin or self.model_call.tokens.context_is_full:
            await self._made_room()
        await self._fit(opening)
        self._record_opening(opening)
        await self.steps.prepare()
        pauses = 0
        while True:
            for words in self.take_input():
                self._record_words(words, announced=False)
            await self._fit()
            reply = await self._ask(keeps_messages=at_begin)
            if (diff := await self.steps.diff()) is not None:
                self.model_call.emitter.emit(TurnDiffEvent(unified_diff=diff))
            items = self.model_call.hand_over(reply)
            self.model_call.transcript.record(self.model_call.emitter, items)
            self.steps.after_reply(items, calls=reply.calls)
            self._check_cut(reply)
            if reply.paused and pauses < MOST_PAUSES:
                pauses += 1
                continue
            if at_begin and not reply.calls and not self.has_steered():
                return last_assistant_text(items)
            if await self._made_room():
                continue
            if not reply.calls and not self.has_steered():
                return last_assistant_text(items)

    def interrupted(self) -> None:
        """Keep what is done; called once the turn's tasks have ended."""
        self.model_call.abandon()
        # Said but not yet sent: the next turn's request carries it.
        if self._opening is not None:
            self._record_opening(self._opening)
        for words in self.take_input():
            self._record_words(words, announced=False)

    def _check_cut(self, reply: ModelReply) -> None:
        """Raise ModelError for a second answer in a row whose call the output limit cut off: it would go on so."""
        if reply.cut_by is not None and self._was_cut:
            raise incomplete_response(reply.cut_by)
        self._was_cut = reply.cut_by is not None

    async def _ask(self, *, keeps_messages: bool) -> ModelReply:
        room = (
            None if self.compaction is None or not self.compaction.room.wants_count else self.compaction.room
        )
        estimated = 0 if room is None else room.estimate()
        explain = None if room is None else partial(room.explained, estimated=estimated)
        reply = await self.model_call.request(self._prompt, keeps_messages=keeps_messages, explain=explain)
        if room is not None:
            room.learn(estimated)
        return reply

    async def _fit(self, words: UserWords | None = None) -> None:
        """Compact if the next request would leave no room for an answer in a small window. Raises the error with the
        figures if it would not even then, unless the window is a guess; `words` that are not recorded yet then stay out
        of the history.
        """
        if self.compaction is None:
            return
        room, more = self.compaction.room, () if words is None else words.messages()
        if room.fits(more):
            return
        if not self._compacted and room.gains():
            await self._compact(self.compaction)
        if not room.fits(more) and not room.may_try:
            if words is not None:
                self._opening = None
                self._show(words, announced=True)
            raise room.too_small(more)

    def _prompt(self) -> Prompt:
        return self.steps.prompt(self.model_call.transcript.history.for_prompt())

    def _record_opening(self, opening: UserWords) -> None:
        self._record_words(opening, announced=True)
        self._opening = None

    def _record_words(self, words: UserWords, *, announced: bool) -> None:
        """Record and show words. `announced` False: they join the turn, which not all clients are told."""
        self.model_call.transcript.record(self.model_call.emitter, words.messages())
        self._show(words, announced=announced)

    def _show(self, words: UserWords, *, announced: bool) -> None:
        for notice in words.notices:
            self.model_call.emitter.emit(WarningEvent(message=notice))
        if self.show_user_message and words.is_shown:
            self.model_call.emitter.show(words.item(self.new_id()), announced=announced)

    async def _made_room(self) -> bool:
        """Compact where the limit is reached. True: done, or tried in vain; ask the model again."""
        compaction, counts = self.compaction, self.model_call.tokens
        if compaction is None:
            return False
        tokens = compaction.room.estimate() if counts.uncounted else counts.in_context
        over = tokens is not None and tokens >= compaction.limit
        if not (over or counts.context_is_full):
            self._compacted = False
            return False
        if not compaction.room.gains(is_full=counts.context_is_full):
            return False  # the next request is still checked for its room
        if self._compacted:
            raise ContextStillFull(compaction.limit, tokens)
        await self._compact(compaction)
        return True

    async def _compact(self, compaction: AutoCompaction) -> None:
        self._compacted = True
        try:
            await compaction.compact()
        except CoreError as error:
            # The history is what it was, and may still fit: what the turn has done so far is not given up for it.
            self.model_call.emitter.emit(ErrorEvent(message=str(error)))
