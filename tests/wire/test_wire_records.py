"""The quick dataclass against the standard one."""

import dataclasses
import pickle
from dataclasses import field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import records


@records.dataclass(frozen=True, slots=True)
class Quick:
    a: int
    b: str = "b"
    hidden: str = field(default="", repr=False)
    unequal: int = field(default=0, compare=False)


@dataclasses.dataclass(frozen=True, slots=True)
class Usual:
    a: int
    b: str = "b"
    hidden: str = field(default="", repr=False)
    unequal: int = field(default=0, compare=False)


VALUES = st.tuples(st.integers(0, 2), st.sampled_from("xy"), st.sampled_from("xy"), st.integers(0, 1))


@given(VALUES, VALUES)
def test_equality_hash_and_repr_are_those_of_the_standard_one(one: Any, other: Any) -> None:
    assert (Quick(*one) == Quick(*other)) == (Usual(*one) == Usual(*other))
    if Quick(*one) == Quick(*other):
        assert hash(Quick(*one)) == hash(Quick(*other))
    assert repr(Quick(*one)) == repr(Usual(*one)).replace("Usual", "Quick")


def test_what_is_not_frozen_has_no_hash() -> None:
    @records.dataclass(slots=True)
    class Open:
        a: list[int] = field(default_factory=list)

    assert Open() == Open()
    assert Open() is not Open()
    with pytest.raises(TypeError):
        hash(Open())
    with pytest.raises(AttributeError):
        Open().b = 1  # type: ignore[attr-defined]


def test_own_methods_are_kept() -> None:
    @records.dataclass(frozen=True, slots=True)
    class Own:
        a: int

        def __repr__(self) -> str:
            return "own"

        def __hash__(self) -> int:
            return 7

    assert (repr(Own(1)), hash(Own(2))) == ("own", 7)


def test_order_and_tools_of_the_standard_library() -> None:
    @records.dataclass(frozen=True, slots=True, order=True)
    class Ordered:
        a: int

    assert sorted([Ordered(2), Ordered(1)]) == [Ordered(1), Ordered(2)]
    assert dataclasses.replace(Quick(1), b="c") == Quick(1, "c")
    assert [one.name for one in dataclasses.fields(Quick)] == ["a", "b", "hidden", "unequal"]
    assert pickle.loads(pickle.dumps(Quick(3))) == Quick(3)
    match Quick(1, "z"):
        case Quick(a, b):
            assert (a, b) == (1, "z")


def test_a_value_that_holds_itself_can_be_shown() -> None:
    @records.dataclass(slots=True)
    class Ring:
        next: Any = None

    ring = Ring()
    ring.next = ring
    assert repr(ring).endswith("Ring(next=...)")
