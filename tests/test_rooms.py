"""The bounds of the structure. `python -m tests.support.rooms` shows what is measured."""

from __future__ import annotations

from tests.support import rooms


def test_the_package_has_few_entries() -> None:
    assert len(rooms.entries()) <= 6, rooms.entries()


def test_there_are_few_rooms_and_arrows_between_them() -> None:
    arrows = rooms.arrows()
    assert len(rooms.rooms()) <= 11, rooms.rooms()
    assert len(arrows) <= 30, sorted(arrows)
    assert [pair for pair in arrows if pair[::-1] in arrows] == []


def test_names_that_were_replaced_do_not_come_back() -> None:
    assert rooms.old_names() == []


def test_the_name_of_a_module_says_what_it_is_without_its_folder() -> None:
    assert rooms.shared_module_names() == {}
