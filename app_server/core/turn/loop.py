"""The turn loop on one page: ask the model, run what it calls, ask again, until it asks for nothing.

1. The turn starts; the user's words are its first item.
2. What the user said meanwhile joins the conversation, ahead of the next request.
3. One request; its items and the outputs of its calls are recorded in the model's order.
4. Where the context has grown over the limit, the history is compacted, once, and the model is asked again; also
   where the compaction failed, which is told as an error. In turns of APIs that follow turns, an answer ends the turn
   first, and the next one begins with the compaction.
5. The turn ends when the model called nothing and no words are promised to this turn. Other words that came during
   that last reply begin the next turn.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import field

from app_server.core.errors import CoreError
from app_server.core.model.prompt import Prompt
from app_server.core.turn.emitter import TurnEmitter
from app_server.core.turn.items import last_assistant_text
from app_server.core.turn.model_call import ModelCall
from app_server.core.turn.token_counts import TokenCounts
from app_server.core.turn.transcript import Transcript
from app_server.core.turn.user_words import UserWords
from protocol.engine.events import TurnKind
from protocol.events.notices import ErrorEvent, WarningEvent
from protocol.events.patches import TurnDiffEvent
from protocol.records import dataclass
from protocol.responses import ResponseItem


class ContextStillFull(CoreError):
    """Compacting did not bring the conversation below its limit."""

    def __init__(self, limit: int, tokens: int | None) -> None:
        super().__init__(
            f"Conversation is still above the token limit after automatic summarization (limit {limit}, current "
            f"{'unknown' if tokens is None else tokens}). Please start a new session or trim your input."
        )


@dataclass(slots=True, kw_only=True)
class TurnLoop:
    """One turn of one conversation."""

    kind: TurnKind
    emitter: TurnEmitter
    transcript: Transcript
    tokens: TokenCounts
    model_call: ModelCall
    prompt: Callable[[Sequence[ResponseItem]], Prompt]
    take_input: Callable[[], list[UserWords]]
    """What the user said since it was last called."""
    has_steered: Callable[[], bool]
    """Whether words are promised to this turn that the model was not asked with."""
    prepare: Callable[[], Awaitable[None]]
    """Awaited before the first request: what the model is offered may have to be found out first."""
    compact: Callable[[], Awaitable[None]]
    compact_limit: int | None
    diff: Callable[[], Awaitable[str | None]]
    """The change of files by this turn, in git's format; None: none."""
    before_recording: Callable[[], Awaitable[None]]
    """Awaited once the first reply with calls has settled, before it is recorded."""
    new_id: Callable[[], str]
    after_reply: Callable[[bool], None] = lambda calls: None
    """Called once a reply is recorded, with whether it called tools."""
    compacts_first: bool = False
    """A full context is compacted at the next turn's begin, and not by asking on when the model has answered."""
    show_user_message: bool = True
    _compacted: bool = field(default=False, init=False)

    async def run(self, opening: UserWords) -> str | None:
        """Returns the last thing the assistant said. Raises ModelError or ContextStillFull."""
        self.emitter.turn_started(self.kind, self.model_call.context_window)
        if self.compacts_first:
            await self._made_room()
        self._record_words(opening, announced=True)
        await self.prepare()
        while True:
            for words in self.take_input():
                self._record_words(words, announced=False)
            reply = await self.model_call.request(self._prompt)
            if diff := await self.diff():
                self.emitter.emit(TurnDiffEvent(unified_diff=diff))
            if reply.calls:
                await self.before_recording()
            items = reply.items(self.model_call.clock())
            self.transcript.record(self.emitter, items)
            self.after_reply(bool(reply.calls))
            if self.compacts_first and not reply.calls and not self.has_steered():
                return last_assistant_text(items)
            if await self._made_room():
                continue
            if not reply.calls and not self.has_steered():
                return last_assistant_text(items)

    def interrupted(self) -> None:
        """Keep what is done; called once the turn's tasks have ended."""
        self.model_call.abandon()
        for words in self.take_input():
            # Said but not yet sent: the next turn's request carries it.
            self._record_words(words, announced=False)

    def _prompt(self) -> Prompt:
        return self.prompt(self.transcript.history.for_prompt())

    def _record_words(self, words: UserWords, *, announced: bool) -> None:
        """`announced` False: the words join the turn, of which the conversation API does not tell."""
        self.transcript.record(self.emitter, words.messages())
        for notice in words.notices:
            self.emitter.emit(WarningEvent(message=notice))
        if self.show_user_message and words.is_shown:
            self.emitter.show(words.item(self.new_id()), announced=announced)

    async def _made_room(self) -> bool:
        """Compact where the limit is reached. True: done, or tried in vain; ask the model again."""
        tokens = self.tokens.in_context
        if self.compact_limit is None or tokens is None or tokens < self.compact_limit:
            self._compacted = False
            return False
        if self._compacted:
            raise ContextStillFull(self.compact_limit, tokens)
        self._compacted = True
        try:
            await self.compact()
        except CoreError as error:
            # The history is what it was, and may still fit: what the turn has done so far is not given up for it.
            self.emitter.emit(ErrorEvent(message=str(error)))
        return True
