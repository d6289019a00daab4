"""Which lines of a file do not count after some were taken back."""

import json

from hypothesis import given
from hypothesis import strategies as st

from app_server.core.rollout.record import REVERTED, TakenBack, revert_line
from protocol.base import Json

KEEPS: st.SearchStrategy[Json] = st.integers(-2, 40) | st.sampled_from([None, True, "3", 2.0])


@given(st.lists(st.tuples(st.integers(0, 5), KEEPS), max_size=12), st.integers(0, 12))
def test_a_line_takes_back_what_is_between_the_kept_lines_and_itself(
    lines: list[tuple[int, Json]], shared: int
) -> None:
    """Also where a reader goes on from what another one knows already."""
    taken_back, gone = TakenBack(), set[int]()
    number = -1
    for n, (passed, keeps) in enumerate(lines):
        if n == shared:
            known = set(gone)
            before, taken_back = taken_back, TakenBack(taken_back)
        number += passed + 1
        valid = type(keeps) is int and 1 <= keeps <= number
        assert taken_back.take({"kept_lines": keeps}, number) is valid
        if valid:
            gone |= set(range(keeps, number + 1))
    everything = range(-1, number + 3)
    assert {n for n in everything if n in taken_back} == gone
    assert bool(taken_back) is bool(gone)
    if shared < len(lines):
        assert {n for n in everything if n in before} == known


def test_a_line_that_says_nothing_takes_nothing_back() -> None:
    taken_back = TakenBack()
    assert not taken_back.take({}, 5)
    assert not taken_back


def test_the_line_is_read_as_it_was_written() -> None:
    line = json.loads(revert_line(3, 2).to_json())
    assert line == {"type": REVERTED, "num_turns": 2, "kept_lines": 3}
    taken_back = TakenBack()
    assert taken_back.take(line, 5)
    assert [n for n in range(8) if n in taken_back] == [3, 4, 5]
