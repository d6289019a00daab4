"""The model's history: an append-only list of items, its normalised form for requests, and its rebuilt form after a
compaction.

In a request, every call has exactly one output and every output a call, even after interrupts. `for_prompt` ensures
that without changing the recorded items.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence

from app_server.engine.context.environment_context import user_text
from app_server.engine.context.sizes import MOST_KEPT_TOKENS
from app_server.engine.context.text_for_model import BYTES_PER_TOKEN, estimate_tokens, within_tokens
from app_server_protocol import responses
from app_server_protocol.responses import InputText, MessageItem, ResponseItem, call_key, output_key
from app_server_protocol.rollout import is_injected


class ConversationHistory:
    """The items in order. Items themselves are immutable."""

    def __init__(self, items: Iterable[ResponseItem] = ()) -> None:
        self._items: list[ResponseItem] = []
        self._prompt: list[ResponseItem] = []
        self._waiting: Counter[tuple[bool, str]] = Counter()
        self._paired = True
        self._measured, self._bytes = 0, 0
        self.replace(items)

    def __len__(self) -> int:
        return len(self._items)

    @property
    def items(self) -> Sequence[ResponseItem]:
        return self._items

    def record(self, items: Iterable[ResponseItem]) -> None:
        for item in items:
            if not isinstance(item, responses.OtherItem):
                self._items.append(item)
                self._follow(item)

    def replace(self, items: Iterable[ResponseItem]) -> None:
        self._items, self._prompt, self._paired = [], [], True
        self._measured = self._bytes = 0
        self._waiting.clear()
        self.record(items)

    def for_prompt(self) -> list[ResponseItem]:
        """Return a request's input. Usually just a copy, because nearly always every call has its output."""
        return list(self._prompt) if self._paired and not self._waiting else normalise(self._items)

    def prompt_bytes(self) -> int:
        """Return the size of a request's input. Each item is measured once."""
        for item in self._prompt[self._measured :]:
            self._bytes += item_bytes(item)
        self._measured = len(self._prompt)
        return self._bytes

    def _follow(self, item: ResponseItem) -> None:
        if isinstance(item, responses.GhostSnapshot):
            return
        if isinstance(item, responses.CallItem):
            self._waiting[call_key(item)] += 1
        elif isinstance(item, responses.OutputItem):
            key = output_key(item)
            if not self._waiting[key]:
                self._paired = False
            self._waiting[key] -= 1
            if self._waiting[key] <= 0:
                del self._waiting[key]
        self._prompt.append(item)


def normalise(items: Sequence[ResponseItem]) -> list[ResponseItem]:
    """Return a request's input: calls paired with outputs, without snapshots and unknown items.

    A call without an output gets an "aborted" one directly after it; an output without a call is dropped. Ids may
    repeat in later replies: each output belongs to the earliest call with its id that has no output yet.
    """
    answered, answers = _pairs(items)
    out: list[ResponseItem] = []
    for n, item in enumerate(items):
        if isinstance(item, responses.GhostSnapshot | responses.OtherItem):
            continue
        if n in answers or not isinstance(item, responses.OutputItem):
            out.append(item)
        if n not in answered and isinstance(item, responses.CallItem):
            out.append(responses.aborted_output(item))
    return out


def _pairs(items: Sequence[ResponseItem]) -> tuple[set[int], set[int]]:
    """Return the indices of calls that have an output, and of outputs that have a call."""
    waiting: dict[tuple[bool, str], deque[int]] = {}
    answered: set[int] = set()
    answers: set[int] = set()
    for n, item in enumerate(items):
        if isinstance(item, responses.CallItem):
            waiting.setdefault(call_key(item), deque()).append(n)
        elif isinstance(item, responses.OutputItem) and (calls := waiting.get(output_key(item))):
            answered.add(calls.popleft())
            answers.add(n)
    return answered, answers


NO_SUMMARY = "(no summary available)"


class SummaryMessage(MessageItem):
    """A summary of the earlier history, as a user message. It looks like any other message to the model and on the
    wire. Only its type marks it, so that a user's text cannot imitate it.
    """


def summary_message(text: str) -> SummaryMessage:
    return SummaryMessage(role="user", content=(InputText(text=text),))


def collect_user_messages(items: Sequence[ResponseItem]) -> list[str]:
    """Return the user's own texts, oldest first, without injected messages and earlier `SummaryMessage`s."""
    out = []
    for item in items:
        if isinstance(item, MessageItem) and item.role == "user" and not isinstance(item, SummaryMessage):
            text = message_text(item)
            if text and not is_injected(text):
                out.append(text)
    return out


def message_text(item: MessageItem) -> str:
    return "\n".join(part.text for part in item.content if isinstance(part, InputText | responses.OutputText))


def build_compacted_history(
    opening: Sequence[ResponseItem],
    user_messages: Sequence[str],
    summary: str,
    *,
    kept_tokens: int = MOST_KEPT_TOKENS,
) -> list[ResponseItem]:
    """Return `opening` first, then the newest user messages that fit into `kept_tokens`, in their order, then the
    summary.
    """
    words = (user_text(text) for text in kept_messages(user_messages, kept_tokens))
    return [*opening, *words, summary_message(summary or NO_SUMMARY)]


def kept_messages(user_messages: Sequence[str], tokens: int) -> list[str]:
    """Return the newest messages that fit, in their order; the first of them may be cut."""
    kept: list[str] = []
    left = tokens
    for text in reversed(user_messages):
        size = estimate_tokens(text)
        if size > left:
            kept.append(within_tokens(text, left) if left > 0 else "")
            break
        kept.append(text)
        left -= size
    return [text for text in reversed(kept) if text]


def without_oldest(items: Sequence[ResponseItem]) -> list[ResponseItem]:
    """Drop a quarter of a history from the front, at least one item, with the outputs of its calls and all thoughts.
    The last item stays: it has the task.
    """
    *before, last = items
    rest = before[max(len(before) // 4, 1) :]
    kept = [item for item in rest if not isinstance(item, responses.ReasoningResponseItem)]
    _, answers = _pairs(kept)
    paired = (
        item for n, item in enumerate(kept) if n in answers or not isinstance(item, responses.OutputItem)
    )
    return [*paired, last]


def with_marked_summary(items: Sequence[ResponseItem], summary: str) -> list[ResponseItem]:
    """Mark the last message of a compacted history from another program as the summary, if it is the summary."""
    places = [n for n, item in enumerate(items) if _says(item, summary)]
    marked = list(items)
    if places:
        marked[places[-1]] = summary_message(summary)
    return marked


def _says(item: ResponseItem, text: str) -> bool:
    return isinstance(item, MessageItem) and item.role == "user" and message_text(item) == text


def estimate_history(items: Sequence[ResponseItem], instructions: str) -> int:
    """Return the estimated size of a request with this history, in tokens."""
    size = sum(item_bytes(item) for item in items) + len(instructions)
    return -(-size // BYTES_PER_TOKEN)


PICTURE_BYTES = 1000 * BYTES_PER_TOKEN
"""Size that a picture counts as, in bytes, regardless of the size of its file."""


def item_bytes(item: ResponseItem) -> int:
    """Return the size of an item in a request, in bytes. A picture counts as the bytes of text with as many tokens."""
    size = len(item.to_json())
    if isinstance(item, MessageItem):
        for part in item.content:
            if isinstance(part, responses.InputImage):
                size += PICTURE_BYTES - len(part.image_url)
    return max(size, 0)
