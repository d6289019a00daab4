"""Plans in what the model says: however it is cut into pieces, they are found, and nothing is lost."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.core.turn.plan_message import Piece, PlainText, PlanEdge, PlanFinder, PlanText

MESSAGES = st.lists(
    st.sampled_from(["<proposed_plan>", "</proposed_plan>", "<propo", "a", "\n", "\n", " ", "é"]), max_size=20
).map("".join)


def found(*deltas: str) -> list[str]:
    """`plan: text` and `said: text`, with neighbours of one kind joined."""
    finder, out = PlanFinder(), list[str]()
    pieces: list[Piece] = [piece for delta in deltas for piece in finder.feed(delta)]
    for piece in [*pieces, *finder.finish()]:
        match piece:
            case PlanEdge.BEGINS:
                out.append("plan: ")
            case PlanEdge.ENDS:
                out.append("said: ")
            case PlainText(text) | PlanText(text):
                if not out:
                    out.append("said: ")
                assert out[-1].startswith("plan" if isinstance(piece, PlanText) else "said")
                out[-1] += text
    return [each for each in out if each != "said: "]


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("hello", ["said: hello"]),
        ("a\n<proposed_plan>\n# P\n- x\n</proposed_plan>\nb", ["said: a\n", "plan: # P\n- x\n", "said: b"]),
        ("<proposed_plan>\nx", ["plan: x"]),
        ("  <proposed_plan>  \nx\n</proposed_plan>", ["plan: x\n"]),
        ("a <proposed_plan>\nx", ["said: a <proposed_plan>\nx"]),
        ("<proposed_plan> x\ny", ["said: <proposed_plan> x\ny"]),
        ("</proposed_plan>\nx", ["said: </proposed_plan>\nx"]),
        (
            "<proposed_plan>\n1\n</proposed_plan>\n<proposed_plan>\n2\n</proposed_plan>\n",
            ["plan: 1\n", "plan: 2\n"],
        ),
    ],
)
def test_a_plan_stands_between_tags_on_lines_of_their_own(message: str, expected: list[str]) -> None:
    assert found(message) == expected
    assert found(*message) == expected


@given(MESSAGES, st.data())
def test_how_a_message_is_cut_changes_nothing(message: str, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(message)), max_size=6)))
    places = [0, *cuts, len(message)]
    deltas = [message[start:end] for start, end in pairwise(places)]
    assert found(*deltas) == found(message)


@given(MESSAGES)
def test_nothing_but_tags_is_left_out(message: str) -> None:
    kept = "".join(each.partition(": ")[2] for each in found(message))
    tags = [line for line in message.split("\n") if line.strip() in ("<proposed_plan>", "</proposed_plan>")]
    if not tags:
        assert kept == message
    assert len(message) - len(kept) <= sum(len(tag) + 1 for tag in tags)


def test_text_is_handed_on_as_soon_as_it_can_be_no_tag() -> None:
    finder = PlanFinder()
    assert list(finder.feed("Hel")) == [PlainText("Hel")]
    assert list(finder.feed("lo <proposed_plan>")) == [PlainText("lo <proposed_plan>")]
    assert list(finder.feed("\n<prop")) == [PlainText("\n")]
    assert list(finder.feed("erty>")) == [PlainText("<property>")]
    assert list(finder.feed(" " * 100)) == [PlainText(" " * 100)]
