"""What a picker of threads offers, and how text is cut to the columns of a terminal."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from app_server.chat.cell_text import cut_to
from app_server.chat.slash_commands import ThreadChoices, title_of
from protocol.v2.thread import IdleThreadStatus, SessionOriginWord, Thread


def threads(*names: str) -> list[Thread]:
    return [
        Thread(
            id=f"t{n}",
            session_id=f"t{n}",
            name=name,
            preview="",
            cwd="/w",
            ephemeral=False,
            project_id=None,
            model_provider="p",
            created_at=0,
            updated_at=0,
            status=IdleThreadStatus(),
            cli_version="1",
            source=SessionOriginWord.CLI,
            turns=(),
        )
        for n, name in enumerate(names)
    ]


def names(choices: ThreadChoices) -> list[str]:
    return [title_of(thread) for thread in choices.matching]


def test_every_typed_word_has_to_be_in_a_thread() -> None:
    choices = ThreadChoices(threads("Paint it Red", "paint it blue", "Straße"))
    choices.filter("PAINT re")
    assert names(choices) == ["Paint it Red"]
    choices.filter("strasse /w")
    assert names(choices) == ["Straße"]
    choices.filter("absent")
    assert (names(choices), choices.chosen) == ([], None)


def test_the_chosen_thread_stays_chosen_while_it_matches() -> None:
    choices = ThreadChoices(threads("one a", "two a", "three"))
    choices.move(1)
    choices.filter("a")
    assert choices.chosen is not None
    assert choices.chosen.name == "two a"
    choices.filter("three")
    assert choices.selected == 0


def test_nothing_is_chosen_beyond_the_ends() -> None:
    choices = ThreadChoices(threads("one", "two"))
    choices.move(-1)
    assert choices.selected == 0
    choices.move(10)
    assert choices.selected == 1


@pytest.mark.parametrize(("selected", "first"), [(0, 0), (5, 4), (9, 7)])
def test_the_rows_around_the_chosen_one_are_shown(selected: int, first: int) -> None:
    choices = ThreadChoices(threads(*"abcdefghij"))
    choices.move(selected)
    at, shown = choices.shown(3)
    assert (at, len(shown)) == (first, 3)
    assert at <= selected < at + 3


@given(st.text(st.characters(exclude_categories=("Cc", "Cs"))), st.integers(1, 40))
def test_a_line_is_cut_to_the_columns_that_there_are(text: str, columns: int) -> None:
    cut = cut_to(text, columns)
    assert cell_len(cut) <= columns
    assert cut == text or cut.rstrip("… ") in text
