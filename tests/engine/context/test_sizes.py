"""Bounds of the model's input, for any window."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from app_server.engine.context.history import kept_messages, without_oldest
from app_server.engine.context.sizes import PromptSize, bounds_of, chosen_size, size_of_window
from app_server.engine.context.text_for_model import OutputLimit, estimate_tokens, shorten
from app_server.engine.model.catalogue import UNKNOWN
from app_server.engine.session.turn_context import base_instructions
from app_server_protocol.responses import (
    FunctionCall,
    FunctionCallOutput,
    FunctionCallOutputPayload,
    InputText,
    MessageItem,
    ReasoningResponseItem,
    ResponseItem,
)

WINDOWS = st.integers(1_024, 2_000_000)


def test_the_size_of_the_prompt_follows_the_window_unless_somebody_chose_one() -> None:
    sizes = [size_of_window(window) for window in (7_999, 8_000, 23_999, 24_000)]
    assert sizes == [PromptSize.TINY, PromptSize.SMALL, PromptSize.SMALL, PromptSize.FULL]
    assert chosen_size(4_096, "auto", None) is PromptSize.TINY
    assert chosen_size(4_096, "auto", "small") is PromptSize.SMALL
    assert chosen_size(4_096, "full", "small") is PromptSize.FULL


def test_small_windows_are_compacted_early_and_cut_outputs() -> None:
    found = {
        window: (
            bounds_of(window, size_of_window(window)).compact_at,
            bounds_of(window, size_of_window(window)).output,
        )
        for window in (4_096, 8_192, 16_384, 32_768)
    }
    assert {window: at for window, (at, _) in found.items()} == {
        4_096: 3_196,
        8_192: 6_554,
        16_384: 13_108,
        32_768: 29_491,
    }
    outputs = {window: output.max_bytes for window, (_, output) in found.items()}
    assert outputs == {4_096: 512 * 4, 8_192: 1_024 * 4, 16_384: 2_048 * 4, 32_768: 10 * 1024}


def test_the_users_limit_of_one_output_counts_in_place_of_the_usual_one() -> None:
    assert bounds_of(272_000, PromptSize.FULL, 5_000).output == OutputLimit(20_000, None)
    assert bounds_of(4_096, PromptSize.TINY, 5_000).output.max_bytes == 512 * 4
    assert bounds_of(4_096, PromptSize.TINY, 100).output.max_bytes == 400


@given(WINDOWS)
def test_a_compacted_history_leaves_more_room_than_it_takes(window: int) -> None:
    bounds = bounds_of(window, size_of_window(window))
    assert 0 < bounds.compact_at < window
    rest = bounds.kept_words + bounds.summary + (bounds.documents or 0)
    assert rest <= bounds.compact_at
    assert bounds.request is None or bounds.compact_at // 2 <= bounds.request < window
    assert bounds.output.max_bytes <= max(window, 10 * 1024)


@given(st.text(max_size=6_000), st.integers(200, 4_000), st.sampled_from([None, 8, 256]))
def test_an_output_is_never_much_longer_than_its_limit(text: str, most: int, lines: int | None) -> None:
    shown = shorten(text, OutputLimit(most, lines))
    assert len(shown.encode("utf-8", "replace")) <= most + 100


@given(st.lists(st.text(max_size=300), max_size=8), st.integers(0, 200))
def test_kept_words_stay_in_their_room(words: list[str], tokens: int) -> None:
    kept = kept_messages(words, tokens)
    assert sum(map(estimate_tokens, kept)) <= tokens + 20  # the mark of the cut needs some tokens
    assert all(text for text in kept)


def _call(n: int) -> list[ResponseItem]:
    return [
        FunctionCall(call_id=f"c{n}", name="shell", arguments="{}"),
        FunctionCallOutput(call_id=f"c{n}", output=FunctionCallOutputPayload(content="out")),
    ]


def _words(text: str) -> MessageItem:
    return MessageItem(role="user", content=(InputText(text=text),))


def test_a_quarter_goes_at_a_time_with_outputs_and_thoughts() -> None:
    thought = ReasoningResponseItem(summary=())
    items = [_words("a"), *_call(1), thought, *_call(2), *_call(3), _words("summary, please")]
    left = without_oldest(items)
    assert left == [*_call(2), *_call(3), items[-1]]
    while len(left) > 1:
        left = without_oldest(left)
    assert left == [items[-1]]


def test_instructions_fit_their_size() -> None:
    sizes = {size: estimate_tokens(base_instructions(UNKNOWN, size)) for size in PromptSize}
    assert sizes[PromptSize.TINY] <= 140
    assert sizes[PromptSize.SMALL] <= 280
    assert sizes[PromptSize.FULL] <= 860
