"""The bounds of the structure. `python -m tests.support.rooms` shows what is measured."""

from __future__ import annotations

from tests.support import rooms


def test_the_package_has_few_entries() -> None:
    assert len(rooms.entries()) <= 6, rooms.entries()


def test_there_are_few_rooms_and_arrows_and_no_names_that_are_gone() -> None:
    arrows = rooms.arrows()
    assert len(rooms.rooms()) <= 11, rooms.rooms()
    assert len(arrows) <= 30, sorted(arrows)
    assert [pair for pair in arrows if pair[::-1] in arrows] == []

    # In the same test: a worker parses the sources once.
    assert rooms.old_names() == [], "names that were replaced"


def test_the_name_of_a_module_says_what_it_is_without_its_folder() -> None:
    assert rooms.shared_module_names() == {}
