"""The backlog of a client: lines in order, texts as marks that are resolved when they are written, only the last of
states for a client that is behind, each byte counted.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from app_server.server.rpc.backlog import PLACE, SendBuffer

OVERHEAD = 10


class Text(msgspec.Struct, eq=False):
    """A text that grows by pieces."""

    name: str
    pieces: list[str] = msgspec.field(default_factory=list)

    @property
    def end(self) -> int:
        return len(self.pieces)

    @property
    def size(self) -> int:
        return self.size_of(0, self.end)

    def size_of(self, start: int, end: int) -> int:
        return sum(len(piece) + OVERHEAD for piece in self.pieces[start:end])

    def lines(self, start: int, end: int, *, joined: bool) -> list[bytes]:
        pieces = ["".join(self.pieces[start:end])] if joined else self.pieces[start:end]
        return [json.dumps([self.name, piece]).encode() for piece in pieces]


def grow(text: Text, piece: str, *backlogs: SendBuffer) -> None:
    start, before = text.end, text.size
    text.pieces.append(piece)
    for backlog in backlogs:
        backlog.add_text(text, start, before)


def everything(backlog: SendBuffer, *, joined: bool = False) -> list[bytes]:
    return backlog.take(1 << 60, joined=joined)


def test_each_piece_is_a_line_for_who_keeps_up_and_all_are_one_for_who_is_behind() -> None:
    quick, slow = SendBuffer(), SendBuffer()
    for backlog in (quick, slow):
        backlog.add(b"before")
    for name in ("one", "other"):
        text = Text(name)
        for piece in "abc":
            grow(text, f"{piece} ", quick, slow)
    assert len(quick) == 3
    assert everything(quick) == [
        b"before",
        *(f'["{name}", "{piece} "]'.encode() for name in ("one", "other") for piece in "abc"),
    ]
    assert everything(slow, joined=True) == [b"before", b'["one", "a b c "]', b'["other", "a b c "]']


def test_what_comes_behind_another_line_is_not_moved_before_it() -> None:
    backlog, text = SendBuffer(), Text("text")
    for piece in "ab":
        grow(text, piece, backlog)
    backlog.add(b"end of the part")
    grow(text, "c", backlog)
    backlog.add_answer(b"an answer")
    grow(text, "d", backlog)
    lines = [b'["text", "ab"]', b"end of the part", b'["text", "c"]', b"an answer", b'["text", "d"]']
    assert everything(backlog, joined=True) == lines


def test_who_lacks_a_text_from_later_on_gets_it_from_there() -> None:
    backlogs, text = [SendBuffer() for _ in range(3)], Text("text")
    for number, piece in enumerate("abcdef"):
        grow(text, piece, *backlogs[: 1 + number // 2])
    assert [everything(each, joined=True) for each in backlogs] == [
        [b'["text", "abcdef"]'],
        [b'["text", "cdef"]'],
        [b'["text", "ef"]'],
    ]


def test_an_open_mark_covers_what_comes_without_being_told() -> None:
    backlog, text = SendBuffer(), Text("text")
    grow(text, "a", backlog)
    assert backlog.is_sending(text)
    grow(text, "b")
    assert backlog.size == text.size
    assert everything(backlog) == [b'["text", "a"]', b'["text", "b"]']
    assert not backlog.is_sending(text)
    grow(text, "not for it")
    assert everything(backlog) == []


def test_a_long_mark_is_taken_in_parts() -> None:
    backlog, text = SendBuffer(), Text("text")
    for piece in "abcde":
        grow(text, piece, backlog)
    backlog.add(b"end")
    assert backlog.take(2 * (OVERHEAD + 1)) == [b'["text", "a"]', b'["text", "b"]']
    assert (len(backlog), backlog.size) == (2, 3 * (OVERHEAD + 1) + 4)
    assert everything(backlog, joined=True) == [b'["text", "cde"]', b"end"]
    assert (len(backlog), backlog.size, backlog.held) == (0, 0, 0)


def test_of_what_says_the_same_state_the_last_is_left_where_it_was_said() -> None:
    backlog = SendBuffer()
    backlog.add_state("status", b"active", last_only=True)
    backlog.add_state("usage", b"1", last_only=True)
    backlog.add(b"turn completed")
    backlog.add_state("status", b"idle", last_only=True)
    assert everything(backlog) == [b"1", b"turn completed", b"idle"]
    backlog.add_state("status", b"active", last_only=True)
    assert everything(backlog) == [b"active"]


def test_who_keeps_up_gets_each_state() -> None:
    backlog = SendBuffer()
    for line in (b"active", b"idle"):
        backlog.add_state("status", line, last_only=False)
    backlog.add_state("status", b"active again", last_only=True)  # it has fallen behind
    assert everything(backlog) == [b"active", b"active again"]


def test_bytes_are_counted_apart_from_those_that_were_asked_for_and_from_texts() -> None:
    backlog, text = SendBuffer(), Text("text")
    backlog.add(b"12345")
    backlog.add_answer(b"123")
    grow(text, "much", backlog)
    grow(text, "more", backlog)
    texts = 2 * (4 + OVERHEAD)
    assert (backlog.size, backlog.held, backlog.unasked) == (10 + texts, 10 + PLACE, 6 + PLACE)
    backlog.add_state("status", b"1", last_only=True)
    backlog.add_state("status", b"22", last_only=True)
    assert (backlog.size, backlog.unasked) == (13 + texts, 9 + 3 * PLACE)
    assert backlog.take(6) == [b"12345"]
    assert (backlog.size, backlog.unasked, len(backlog)) == (7 + texts, 3 + 3 * PLACE, 4)
    everything(backlog)
    assert (backlog.size, backlog.held, backlog.unasked, len(backlog)) == (0, 0, 0, 0)


def test_nothing_is_left_when_it_is_cleared() -> None:
    backlog, text = SendBuffer(), Text("text")
    backlog.add(b"1")
    grow(text, "a", backlog)
    backlog.add_state("status", b"1", last_only=True)
    backlog.clear()
    assert (backlog.size, backlog.unasked, everything(backlog)) == (0, 0, [])
    grow(text, "b", backlog)
    backlog.add_state("status", b"2", last_only=True)
    assert everything(backlog) == [b'["text", "b"]', b"2"]


def test_a_queue_goes_on_behind_another_one() -> None:
    backlog, joining, text = SendBuffer(), SendBuffer(), Text("text")
    for piece in "ab":
        grow(text, piece, backlog, joining)
    joining.add_state("status", b"idle", last_only=False)
    grow(text, "c", backlog, joining)
    other = Text("other")
    grow(other, "x", backlog)
    backlog.adopt(joining)
    grow(text, "d", backlog, joining)
    assert everything(backlog, joined=True) == [
        b'["text", "abc"]',
        b'["other", "x"]',
        b'["text", "ab"]',
        b"idle",
        b'["text", "c"]',
        b'["text", "d"]',
    ]
    assert everything(joining) == [b'["text", "d"]']


def test_the_oldest_are_dropped_one_by_one() -> None:
    backlog, text = SendBuffer(), Text("text")
    backlog.add(b"1")
    grow(text, "a", backlog)
    backlog.add_state("status", b"2", last_only=False)
    grow(text, "b", backlog)
    for left in (3, 2, 1, 0, 0):
        backlog.drop_first()
        assert len(backlog) == left
    assert (backlog.size, backlog.held, everything(backlog)) == (0, 0, [])


ORDERED = ("line", "answer")

Steps = st.lists(
    st.one_of(
        st.tuples(st.just("line"), st.integers(0, 9)),
        st.tuples(st.just("answer"), st.integers(0, 9)),
        st.tuples(st.sampled_from(["piece of a", "piece of b"]), st.integers(0, 9)),
        st.tuples(st.just("state"), st.integers(0, 1)),
        st.tuples(st.just("take"), st.integers(1, 60)),
        st.tuples(st.just("catch up"), st.integers(1, 60)),
    ),
    max_size=60,
)


@given(Steps)
def test_however_it_is_read_texts_are_whole_and_lines_keep_their_order(steps: list[tuple[str, int]]) -> None:
    backlog, texts = SendBuffer(), {name: Text(name) for name in "ab"}
    read: list[bytes] = []
    sent: list[list[Any]] = []
    for number, (what, n) in enumerate(steps):
        line = json.dumps([what, number]).encode()
        if what in ("take", "catch up"):
            read += backlog.take(n, joined=what == "catch up")
            continue
        if what == "line":
            backlog.add(line)
        elif what == "answer":
            backlog.add_answer(line)
        elif what == "state":
            backlog.add_state("state", line, last_only=bool(n))
        else:
            text = texts[what[-1]]
            grow(text, f"{number} ", *([] if backlog.is_sending(text) else [backlog]))
        sent.append([what, number])
    read += everything(backlog)
    assert (backlog.size, backlog.held, backlog.unasked, len(backlog)) == (0, 0, 0, 0)
    got = [json.loads(line) for line in read]
    lines = [each for each in got if each[0] in ORDERED]
    assert lines == [each for each in sent if each[0] in ORDERED]
    states = [each for each in sent if each[0] == "state"]
    assert [each for each in got if each[0] == "state"][-1:] == states[-1:]
    for name in "ab":
        pieces = [number for what, number in sent if what == f"piece of {name}"]
        assert "".join(text for what, text in got if what == name) == "".join(f"{n} " for n in pieces)
    for position, (what, value) in enumerate(got):
        if what in ORDERED:  # all lines sent before it are read before it
            before = [int(n) for kind, text in got[:position] if kind in "ab" for n in text.split()]
            assert sorted(before) == [n for kind, n in sent if kind.startswith("piece") and n < value]
