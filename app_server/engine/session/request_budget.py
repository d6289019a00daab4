"""Room in the context window: the estimated size of the next request, the gain of a compaction, and the error of a
window that is too small.

Estimates count bytes, corrected by the first count that the provider gave. They decide only for small windows: with a
large one, the provider reports requests that are too long.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from app_server.engine.context.history import (
    ConversationHistory,
    collect_user_messages,
    item_bytes,
    kept_messages,
    message_text,
)
from app_server.engine.context.text_for_model import BYTES_PER_TOKEN, estimate_tokens
from app_server.engine.model.prompt import ToolSpec
from app_server.engine.session.head import HeadSize, RequestTemplate
from app_server.engine.session.model_notices import silence_notice
from app_server.engine.session.session_services import SessionState
from app_server.engine.support.engine_errors import ContextWindowExceeded, ModelError
from app_server.engine.tools.registry import spec_tokens
from app_server_protocol.engine.errors import ErrorClass
from app_server_protocol.responses import GhostSnapshot, MessageItem, ResponseItem
from app_server_protocol.rollout import AGENTS_HEAD

LEAST_GAIN: Final = 20
"""Divisor of the context window. A compaction is worth its request if it frees at least the quotient, in addition to
the size of its summary.
"""


CUT_SHARE: Final = 0.5
"""Share of the estimated tokens of a request. A provider that counts less has truncated the request."""

LEAST_CUT: Final = 1_024
"""Smallest count that shows a truncated request, in tokens. No server truncates to less; a smaller count is that of the
part that was not cached.
"""

OnCut = Callable[[int, int], None]
"""Receives the number of tokens of a request that a provider has read, and the estimated number."""

LEAST_SILENT: Final = 2_048
"""Size of a request that fits into every context window, in tokens: a server that does not answer it has another
reason.
"""


class WindowGuesses(Protocol):
    """Guessed context windows of models, guessed because a server left a larger request unanswered."""

    def learn_window(self, model: str, tokens: int, *, is_guess: bool = False) -> None: ...

    def window_is_guess(self, model: str) -> bool: ...

    def forget_guess(self, model: str) -> None: ...


class WindowTooSmall(ModelError):
    """A request does not fit into the context window even without the earlier conversation."""

    def __init__(self, text: str) -> None:
        super().__init__(text, ErrorClass.CONTEXT_WINDOW_EXCEEDED)


class RequestBudget:
    """The room for the requests of one turn."""

    def __init__(
        self,
        state: SessionState,
        shape: RequestTemplate,
        specs: Callable[[], Sequence[ToolSpec]],
        cut: OnCut | None = None,
        *,
        guesses: WindowGuesses,
    ) -> None:
        """`cut` is set if the provider truncates long requests silently. `guesses` is used if it may close the
        connection instead of answering.
        """
        self._state, self._shape, self._specs, self._cut = state, shape, specs, cut
        self._guesses = guesses if shape.server.is_own else None
        self.limit = shape.bounds.request
        """Maximum size of a request, in estimated tokens; None if the provider decides."""

    def estimate(self, more: Sequence[ResponseItem] = ()) -> int:
        """Return the estimated tokens of the next request, `more` included."""
        size = self._state.history.prompt_bytes() + sum(item_bytes(item) for item in more)
        return self._head() + self._tokens(size)

    def fits(self, more: Sequence[ResponseItem] = ()) -> bool:
        return self.limit is None or self.estimate(more) <= self.limit

    @property
    def may_try(self) -> bool:
        """Whether a request that seems too large is still worth a try: its window is a guess, which may come from a
        connection that broke for another reason.
        """
        return self._guesses is not None and self._guesses.window_is_guess(self._shape.settings.model)

    def fits_summary(self, scratch: ConversationHistory) -> bool:
        """Return whether a summary of this history can be requested, with room for its answer."""
        if self.limit is None or self.may_try:
            return True
        bounds = self._shape.bounds
        return self.estimate_of(scratch) <= bounds.window - bounds.summary

    def estimate_of(self, history: ConversationHistory) -> int:
        """Return the estimated tokens of a request with this history."""
        return self._head() + self._tokens(history.prompt_bytes())

    def gains(self, *, is_full: bool = False) -> bool:
        """Return whether a compaction frees enough to be worth its request. It always is with a large window, or below
        the limit that the user chose. It also is if the provider has refused the conversation (`is_full`) and the
        history has an answer since the last compaction.
        """
        if self.limit is None or self._shape.compact_limit < self._shape.bounds.compact_at:
            return True
        if is_full and self._has_answers():
            return True
        bounds, history = self._shape.bounds, self._state.history
        kept = kept_messages(collect_user_messages(history.items), bounds.kept_words)
        opening = sum(item_bytes(item) for item in history.items if is_opening(item))
        left = self._tokens(opening + sum(len(text.encode("utf-8", "replace")) for text in kept))
        return self._tokens(history.prompt_bytes()) - left >= bounds.summary + bounds.window // LEAST_GAIN

    def too_small(self, words: Sequence[ResponseItem] = ()) -> WindowTooSmall:
        """Return the error with the sizes of a request that does not fit. `words`: the user's input, not
        recorded yet.
        """
        agents = sum(
            item_bytes(item)
            for item in self._state.history.items
            if isinstance(item, MessageItem) and message_text(item).startswith(AGENTS_HEAD)
        )
        said = sum(item_bytes(item) for item in words)
        rest = self._state.history.prompt_bytes() - agents
        parts = [
            ("instructions and tools", self._head()),
            ("AGENTS.md", self._tokens(agents)),
            ("the conversation" if words else "the conversation with your message", self._tokens(rest)),
            ("your message", self._tokens(said)),
        ]
        figures = ", ".join(f"{name} {size:,}" for name, size in parts if size)
        return WindowTooSmall(
            f"The model `{self._shape.settings.model}` has a window of {self._shape.bounds.window:,} tokens; this "
            f"request takes about {self.estimate(words):,} before any answer ({figures}). Load the model with a larger "
            "window (Ollama: OLLAMA_CONTEXT_LENGTH=32768), shorten the message, or set `model_context_window` if it "
            "has one."
        )

    def expected(self) -> int | None:
        """Return the estimated tokens of the next request; None if the provider's count of it would correct neither the
        estimates nor the context window.
        """
        if self._cut is None and self._guesses is None and self._state.tokens.calibrated:
            return None
        return self.estimate()

    def explain_error(self, error: ModelError, estimated: int) -> ModelError:
        """Return the error for an unanswered request. If the request was larger than all answered ones, it counts as
        too long, since some servers close the connection if a request exceeds their window. The guessed window is then
        the largest size that was answered, or half of the refused size.
        """
        answered = self._state.tokens.answered
        if self._guesses is None or not error.unanswered or estimated <= max(answered, LEAST_SILENT):
            return error
        if not (answered or self._has_answers()):
            return error
        window = max(answered, estimated // 2, LEAST_SILENT)
        self._guesses.learn_window(self._shape.settings.model, window, is_guess=True)
        return ContextWindowExceeded(window, silence_notice(estimated, window))

    def _has_answers(self) -> bool:
        """Return whether the history has an item of the model, other than a summary."""
        return any(
            item.role == "assistant" if isinstance(item, MessageItem) else not isinstance(item, GhostSnapshot)
            for item in self._state.history.items
        )

    def learn(self, estimated: int) -> None:
        """Compare the provider's count of a request with the estimate. The count of a truncated request is the window;
        any other count corrects the estimates.
        """
        tokens = self._state.tokens
        counted = 0 if tokens.uncounted or tokens.info is None else tokens.info.last_token_usage.input_tokens
        if self._cut is not None and LEAST_CUT <= counted < estimated * CUT_SHARE:
            self._cut(counted, estimated)
        else:
            tokens.calibrate(estimated)
            tokens.answered = max(tokens.answered, counted or estimated)
            if self._guesses is not None and max(estimated, counted) > self._shape.bounds.window:
                self._guesses.forget_guess(self._shape.settings.model)

    def _head(self) -> int:
        instructions, specs = self._shape.instructions, self._specs()
        size = self._state.head_size
        if size is None or size.instructions is not instructions or size.specs is not specs:
            tokens = estimate_tokens(instructions) + sum(map(spec_tokens, specs))
            size = self._state.head_size = HeadSize(instructions, specs, tokens)
        return self._corrected(size.tokens)

    def _tokens(self, size: int) -> int:
        per_token = self._shape.model.bytes_per_token or BYTES_PER_TOKEN
        return self._corrected(-(-size // per_token))

    def _corrected(self, tokens: int) -> int:
        return round(tokens * self._state.tokens.ratio)


def is_opening(item: ResponseItem) -> bool:
    """Return whether a compaction puts such an item at the start of the history again."""
    return isinstance(item, MessageItem) and (
        item.role == "developer" or message_text(item).startswith(AGENTS_HEAD)
    )
