from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from app_server.chat.markdown_blocks import MarkdownBlocks


def blocks_of(*pieces: str) -> list[str]:
    blocks = MarkdownBlocks()
    return [*(block for piece in pieces for block in blocks.feed(piece)), *blocks.flush()]


def test_a_paragraph_is_complete_at_the_empty_line() -> None:
    blocks = MarkdownBlocks()
    assert blocks.feed("one\ntwo") == []
    assert blocks.feed("\n\nthree") == ["one\ntwo\n"]
    assert blocks.flush() == ["three\n"]


def test_code_is_one_block_with_its_empty_lines() -> None:
    assert blocks_of("```py\na\n\nb\n```\nafter") == ["```py\na\n\nb\n```\n", "after\n"]
    assert blocks_of("~~~\n```\n\n~~~\n") == ["~~~\n```\n\n~~~\n"]


def test_code_that_does_not_end_is_shown_at_the_end() -> None:
    assert blocks_of("```\nx\n\n") == ["```\nx\n\n"]


texts = st.text(alphabet="ab `~\n*-")


@given(texts, st.lists(st.integers(0, 40)))
def test_how_the_text_is_cut_changes_nothing(text: str, cuts: list[int]) -> None:
    places = sorted({min(cut, len(text)) for cut in cuts} | {0, len(text)})
    pieces = [text[a:b] for a, b in pairwise(places)]
    assert blocks_of(*pieces) == blocks_of(text)


@given(texts)
def test_every_line_with_something_on_it_is_in_one_block(text: str) -> None:
    shown = [line for block in blocks_of(text) for line in block.splitlines() if line.strip()]
    assert shown == [line for line in text.split("\n") if line.strip()]
