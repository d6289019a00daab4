"""The lines of a list: filtering, folding, dropping; and figures of bounded size."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.cli.inspect.analysis import SessionEntry
from app_server.cli.inspect.line_store import EntryStore
from app_server.cli.inspect.overview import MOST_METHODS, MOST_OPEN, PARTS, Histogram, Overview
from app_server.cli.inspect.recorded_lines import STEP, MessageFilter, MessageLines
from app_server.cli.inspect.session_records import Source, record_of
from app_server_protocol.encoding import Json
from app_server_protocol.values import replace
from tests.cli.inspect.recorded_turn import (
    CLIENT,
    HEAD,
    SERVER,
    TURN,
    TURN_WITH_APPROVAL,
    analysed,
    asked,
    told,
)


def listed(entries: Sequence[SessionEntry], filter: MessageFilter, most: int = 250_000) -> MessageLines:
    store = EntryStore(HEAD, most=most)
    store.add(entries)
    lines = MessageLines(store, filter)
    while lines.update():
        pass
    return lines


def numbers(lines: MessageLines) -> list[int]:
    return [line["n"] for line in lines.shown(0, 200)]


@pytest.mark.parametrize(
    ("filter", "found"),
    [
        (MessageFilter(method="TURN/"), [2, 3, 5, 17]),
        (MessageFilter(turn=TURN, direction="client"), [9]),
        (MessageFilter(thread="thread-1", method="initialize"), []),
        (MessageFilter(only="questions"), [8, 9]),
        (MessageFilter(only="errors"), []),
        (MessageFilter(text="DECISION"), [9]),
        (MessageFilter(direction="client"), [0, 2, 9]),
    ],
)
def test_a_filter_finds_messages(filter: MessageFilter, found: list[int]) -> None:
    assert numbers(listed(analysed(TURN_WITH_APPROVAL), filter)) == found


def test_errors_and_violations_are_found() -> None:
    messages: list[tuple[Source, Json]] = [
        asked(1, "initialize", clientInfo={"name": "x", "version": "1"}),
        (SERVER, {"id": 1, "error": {"code": -32600, "message": "no"}}),
        told("turn/completed", turn={"id": TURN, "status": "failed", "error": {"message": "x"}, "items": []}),
        told("error", turnId=TURN, willRetry=True, error={"message": "x"}),
        (CLIENT, {"id": 9, "result": {}}),
        told("nobody/knows"),
    ]
    entries = analysed(messages)
    assert numbers(listed(entries, MessageFilter(only="errors"))) == [1, 2, 3]
    assert 4 in numbers(listed(entries, MessageFilter(only="violations")))
    assert 5 not in numbers(listed(entries, MessageFilter(only="violations"))), (
        "an unknown method is no violation"
    )


def test_stderr_is_listed_only_where_it_is_searched() -> None:
    [first] = analysed([told("warning", message="x")])
    log = replace(first, record=record_of(Source.STDERR, 0, b"the model is slow")[0], kind="text", method="")
    assert numbers(listed([log], MessageFilter())) == []
    assert numbers(listed([log], MessageFilter(text="slow"))) == [0]


def deltas(*items: str) -> list[SessionEntry]:
    return analysed([told("item/agentMessage/delta", turnId=TURN, itemId=item, delta=".") for item in items])


def without_rules(entries: Sequence[SessionEntry]) -> list[SessionEntry]:
    """Return the entries without broken rules. Deltas alone break rules, and a message that breaks one is not
    folded.
    """
    return [replace(entry, violations=()) for entry in entries]


@given(st.text("ab", min_size=1, max_size=20), st.data())
def test_unfolding_and_folding_lose_nothing(items: str, data: st.DataObject) -> None:
    lines = listed(without_rules(deltas(*items)), MessageFilter())
    runs = [items[n] != items[n - 1] for n in range(1, len(items))]
    assert lines.total == 1 + sum(runs)
    for _ in range(data.draw(st.integers(0, 6))):
        at = data.draw(st.integers(0, lines.total - 1))
        place = lines.toggle(at)
        assert 0 <= place < lines.total
        shown = lines.shown(0, 200)
        assert sum(line["times"] for line in shown) == len(items) == lines.matches
        assert [line["n"] for line in shown] == [0, *(line["last"] + 1 for line in shown[:-1])]
        assert all(
            shown[lines.place(n)]["n"] <= n <= shown[lines.place(n)]["last"] for n in range(len(items))
        )


def test_what_is_not_kept_any_more_is_forgotten_many_lines_at_once() -> None:
    store = EntryStore(HEAD, most=100)
    lines = MessageLines(store, MessageFilter(fold=False))
    entries = without_rules(deltas("a"))
    count = 3 * STEP
    for start in range(0, count, 1000):
        store.add(replace(entries[0], number=n) for n in range(start, start + 1000))
        while lines.update():
            pass
    assert lines.total - lines.gone < STEP + 1000
    assert lines.shown(lines.total - 1, 1)[0]["row"]["n"] == count - 1
    assert lines.place(count - 1) == lines.total - 1
    assert lines.place(0) == -1
    old = lines.shown(lines.gone, 1)[0]
    assert "row" not in old, "its entry is gone, its line is not yet"


def test_what_is_known_of_a_session_is_bounded() -> None:
    overview = Overview()
    for entry in analysed([asked(n, f"method/{n}") for n in range(2 * MOST_OPEN)]):
        overview.add(entry)
    assert len(overview.waiting) == MOST_OPEN
    assert len(overview.figures()["methods"]) == MOST_METHODS
    assert overview.brief()["questions"] == [], "none is of the server"


@given(st.lists(st.floats(0, 1e7), min_size=1, max_size=50))
def test_a_histogram_counts_everything_in_few_parts(times: list[float]) -> None:
    histogram = Histogram()
    for at in sorted(times):
        histogram.add("server", at, 2)
    shown = histogram.shown()
    assert sum(shown["counts"]["server"]) == len(times)
    assert sum(shown["sizes"]["server"]) == 2 * len(times)
    assert len(shown["counts"]["server"]) <= PARTS
    last = int(max(times) / shown["width"])
    assert shown["counts"]["server"][last] > 0
