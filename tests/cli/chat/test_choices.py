"""The choices that a picker offers while a person types."""

import pytest

from app_server.cli.chat.slash_context import Choices, PickerRow

pytestmark = pytest.mark.scenario


def choices_of(*texts: str) -> Choices[int]:
    return Choices("row", [PickerRow(text, "/w", number) for number, text in enumerate(texts)])


def texts(choices: Choices[int]) -> list[str]:
    return [row.text for row in choices.matching]


def test_every_typed_word_has_to_be_in_a_row() -> None:
    choices = choices_of("Paint it Red", "paint it blue", "Straße")
    choices.filter("PAINT re")
    assert texts(choices) == ["Paint it Red"]
    choices.filter("strasse /w")
    assert texts(choices) == ["Straße"]
    choices.filter("absent")
    assert (texts(choices), choices.chosen) == ([], None)


def test_the_chosen_row_stays_chosen_while_it_matches() -> None:
    choices = choices_of("one a", "two a", "three")
    choices.move(1)
    choices.filter("a")
    assert choices.chosen is not None
    assert choices.chosen.text == "two a"
    choices.filter("three")
    assert choices.selected == 0


def test_nothing_is_chosen_beyond_the_ends() -> None:
    choices = choices_of("one", "two")
    choices.move(-1)
    assert choices.selected == 0
    choices.move(10)
    assert choices.selected == 1


@pytest.mark.parametrize(("selected", "first"), [(0, 0), (5, 4), (9, 7)])
def test_the_rows_around_the_chosen_one_are_shown(selected: int, first: int) -> None:
    choices = choices_of(*"abcdefghij")
    choices.move(selected)
    at, shown = choices.shown(3)
    assert (at, len(shown)) == (first, 3)
    assert at <= selected < at + 3
