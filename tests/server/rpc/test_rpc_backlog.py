"""The backlog of a client: lines in order, missed texts joined, only the last of states, each byte counted."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from app_server.server.rpc.backlog import MOST_KEPT, PIECE, PLACE, DeltaStream, SendBuffer, SharedChunk


def streamed(name: str, *, output: bool = False) -> DeltaStream:
    return DeltaStream(lambda text: json.dumps([name, text]).encode(), output)


def everything(backlog: SendBuffer) -> list[bytes]:
    return backlog.take(1 << 60)


def test_pieces_that_were_missed_are_one_line_where_the_first_of_them_was() -> None:
    backlog, one, other = SendBuffer(), streamed("one"), streamed("other")
    backlog.add(b"before")
    for text in (one, other):
        for piece in "abc":
            backlog.add_missed(text.part(f"{piece} "))
    assert everything(backlog) == [b"before", b'["one", "a b c "]', b'["other", "a b c "]']


def test_what_comes_behind_another_line_is_not_moved_before_it() -> None:
    backlog, text = SendBuffer(), streamed("text")
    for piece in "ab":
        backlog.add_missed(text.part(piece))
    backlog.add(b"end of the part")
    backlog.add_missed(text.part("c"))
    backlog.add_answer(b"an answer")
    backlog.add_missed(text.part("d"))
    lines = [b'["text", "ab"]', b"end of the part", b'["text", "c"]', b"an answer", b'["text", "d"]']
    assert everything(backlog) == lines


def test_a_text_is_kept_once_for_all_who_miss_it() -> None:
    backlogs, text = [SendBuffer() for _ in range(3)], streamed("text")
    for number, piece in enumerate("abcdef"):
        part = text.part(piece)
        for backlog in backlogs[: 1 + number // 2]:  # one backlog after another falls behind
            backlog.add_missed(part)
    assert [everything(each) for each in backlogs] == [
        [b'["text", "abcdef"]'],
        [b'["text", "cdef"]'],
        [b'["text", "ef"]'],
    ]


def share(line: bytes, shared: SharedChunk, *backlogs: SendBuffer) -> None:
    for backlog in backlogs:
        if backlog not in shared.readers:
            backlog.share(shared)
    shared.add(line)


def test_shared_lines_stand_where_each_client_was_sent_them_and_count_until_they_are_taken() -> None:
    shared, one, other = SharedChunk(), SendBuffer(), SendBuffer()
    share(b"1", shared, one)
    share(b"22", shared, one, other)
    assert (one.size, one.unasked, other.size) == (5, 5, 3)
    other.add_answer(b"an answer")
    share(b"333", shared, one, other)
    assert (one.size, other.size, other.unasked) == (9, 17, 7)
    assert one.take(1) == [b"1", b"22", b"333"]  # they are one entry
    assert (one.size, one.unasked, len(one)) == (0, 0, 0)
    share(b"4", shared, one, other)
    shared.close()
    shared.add(b"for nobody")
    assert everything(one) == [b"4"]
    assert everything(other) == [b"22", b"an answer", b"333", b"4"]


def test_of_much_output_the_beginning_is_kept_and_what_is_left_out_is_said() -> None:
    backlog, text = SendBuffer(), streamed("output", output=True)
    for _ in range(MOST_KEPT // 1000 + 5):
        backlog.add_missed(text.part("x" * 1000))
    lines = [json.loads(line)[1] for line in everything(backlog)]
    assert all(len(line) <= PIECE for line in lines)
    whole = "".join(lines)
    kept = MOST_KEPT // 1000 * 1000
    assert whole == "x" * kept + "\n[... 5000 characters omitted ...]\n"


def test_lines_of_output_are_short_also_where_characters_are_wide() -> None:
    text = streamed("output", output=True)
    assert [len(piece) for piece in text.pieces("ä" * 5000)] == [2048, 2048, 904]
    assert list(text.pieces("a" * 5000)) == ["a" * 5000]


def test_of_what_says_the_same_state_the_last_is_left_where_it_was_said() -> None:
    backlog = SendBuffer()
    backlog.add_state("status", b"active")
    backlog.add_state("usage", b"1")
    backlog.add(b"turn completed")
    backlog.add_state("status", b"idle")
    assert everything(backlog) == [b"1", b"turn completed", b"idle"]
    backlog.add_state("status", b"active")
    assert everything(backlog) == [b"active"]


def test_bytes_are_counted_apart_from_those_that_were_asked_for() -> None:
    backlog, text = SendBuffer(), streamed("text")
    backlog.add(b"12345")
    backlog.add_answer(b"123")
    backlog.add_missed(text.part("much"))
    backlog.add_missed(text.part("more"))
    assert (backlog.size, backlog.unasked) == (10, 6 + PLACE)
    backlog.add_state("status", b"1")
    backlog.add_state("status", b"22")
    assert (backlog.size, backlog.unasked) == (13, 9 + 3 * PLACE)
    assert backlog.take(6) == [b"12345"]
    assert (backlog.size, backlog.unasked, len(backlog)) == (7, 3 + 3 * PLACE, 4)
    everything(backlog)
    assert (backlog.size, backlog.unasked, len(backlog)) == (0, 0, 0)


def test_nothing_is_left_when_it_is_cleared() -> None:
    backlog, text = SendBuffer(), streamed("text")
    backlog.add(b"1")
    backlog.add_missed(text.part("a"))
    backlog.add_state("status", b"1")
    backlog.clear()
    assert (backlog.size, backlog.unasked, everything(backlog)) == (0, 0, [])
    backlog.add_missed(text.part("b"))
    backlog.add_state("status", b"2")
    assert everything(backlog) == [b'["text", "b"]', b"2"]


ORDERED = ("line", "answer", "shared")

Steps = st.lists(
    st.one_of(
        st.tuples(st.just("line"), st.integers(0, 9)),
        st.tuples(st.just("answer"), st.integers(0, 9)),
        st.tuples(st.sampled_from(["piece of a", "piece of b"]), st.integers(0, 9)),
        st.tuples(st.just("state"), st.integers(0, 9)),
        st.tuples(st.sampled_from(["shared", "close"]), st.integers(0, 9)),
        st.tuples(st.just("take"), st.integers(1, 60)),
    ),
    max_size=60,
)


@given(Steps)
def test_whatever_is_missed_and_read_texts_are_whole_and_lines_keep_their_order(
    steps: list[tuple[str, int]],
) -> None:
    backlog, texts = SendBuffer(), {name: streamed(name) for name in "ab"}
    shared, other = SharedChunk(), SendBuffer()
    read: list[bytes] = []
    sent: list[list[Any]] = []
    for number, (what, n) in enumerate(steps):
        line = json.dumps([what, number]).encode()
        if what == "take":
            read += backlog.take(n)
            continue
        if what == "close":
            shared.close()
            shared = SharedChunk()
            continue
        if what == "line":
            backlog.add(line)
        elif what == "shared":
            share(line, shared, backlog, other)
        elif what == "answer":
            backlog.add_answer(line)
        elif what == "state":
            backlog.add_state("state", line)
        else:
            backlog.add_missed(texts[what[-1]].part(f"{number} "))
        sent.append([what, number])
    read += everything(backlog)
    assert (backlog.size, backlog.unasked, len(backlog)) == (0, 0, 0)
    got = [json.loads(line) for line in read]
    lines = [each for each in got if each[0] in ORDERED]
    assert lines == [each for each in sent if each[0] in ORDERED]
    assert [json.loads(line) for line in everything(other)] == [each for each in sent if each[0] == "shared"]
    states = [each for each in sent if each[0] == "state"]
    assert [each for each in got if each[0] == "state"][-1:] == states[-1:]
    for name in "ab":
        pieces = [number for what, number in sent if what == f"piece of {name}"]
        assert "".join(text for what, text in got if what == name) == "".join(f"{n} " for n in pieces)
    for position, (what, value) in enumerate(got):
        if what in ORDERED:  # all lines sent before it are read before it
            before = [int(n) for kind, text in got[:position] if kind in "ab" for n in text.split()]
            assert sorted(before) == [n for kind, n in sent if kind.startswith("piece") and n < value]
