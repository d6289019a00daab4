import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app_server.core.http.sse import EventTooLong, SseDecoder, SseFrame

STREAM = (
    b"\xef\xbb\xbfdata: zero\n\n: hello\n\n"
    b"event: a\ndata: one\n\n"
    b"data: two\r\n\r\n"
    b"data:three\rdata: more\r\r"
    b"id: 1\nretry: 5\nnonsense\n\n"
    b"event: utf\r\ndata: gr\xc3\xbc\xc3\x9fe \xf0\x9f\x98\x80\r\n\n\n"
    b"data\n\n"
    b"data: broken \xe2\x82 bytes\n\n"
)
FRAMES = [
    SseFrame("", b"zero"),
    SseFrame("a", b"one"),
    SseFrame("", b"two"),
    SseFrame("", b"three\nmore"),
    SseFrame("utf", "grüße 😀".encode()),
    SseFrame("", b"broken \xe2\x82 bytes"),
]


def decode(data: bytes, cuts: list[int] | None = None) -> list[SseFrame]:
    decoder, frames, start = SseDecoder(), [], 0
    for cut in [*sorted(cuts or []), len(data)]:
        frames += decoder.feed(data[start:cut])
        start = cut
    return frames + decoder.close()


def test_reads_every_form_of_line_and_field() -> None:
    assert decode(STREAM) == FRAMES


def test_bytes_one_at_a_time_make_no_difference() -> None:
    assert decode(STREAM, list(range(len(STREAM)))) == FRAMES


@settings(deadline=None)
@given(st.lists(st.integers(0, len(STREAM))))
def test_cuts_make_no_difference(cuts: list[int]) -> None:
    assert decode(STREAM, cuts) == FRAMES


@settings(deadline=None)
@given(
    st.binary(max_size=60).map(lambda raw: raw.translate(b"\n\r:d \xef\xbb\xbf" * 32)),
    st.lists(st.integers(0, 60)),
)
def test_cuts_make_no_difference_to_any_bytes(data: bytes, cuts: list[int]) -> None:
    assert decode(data, [min(cut, len(data)) for cut in cuts]) == decode(data)


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_decoding_frames_equals_decoding_the_stream(noise: bytes) -> None:
    data = noise.replace(b"\n", b" ").replace(b"\r", b" ")
    frames = decode(b"data: x" + data + b"\n\ndata: end\n\n")
    text = (b"x" + data).decode("utf-8", "replace")
    assert [frame.data.decode("utf-8", "replace") for frame in frames] == [text, "end"]


def test_only_the_first_mark_is_dropped() -> None:
    assert decode(b"\xef\xbb\xbfdata: \xef\xbb\xbfx\n\n") == [SseFrame("", b"\xef\xbb\xbfx")]


def test_a_last_frame_counts_without_its_empty_line() -> None:
    assert decode(b"data: [DONE]") == [SseFrame("", b"[DONE]")]


def test_frames_come_as_soon_as_they_are_whole() -> None:
    decoder = SseDecoder()
    assert decoder.feed(b"data: a\r\r") == [SseFrame("", b"a")]
    assert decoder.feed(b"\ndata: b\n\ndata: c") == [SseFrame("", b"b")]
    assert decoder.feed(b"\n") == []
    assert decoder.feed(b"\n") == [SseFrame("", b"c")]


def test_a_large_frame_in_small_chunks_is_joined_once() -> None:
    decoder = SseDecoder()
    piece = b"x" * 100
    decoder.feed(b"data: ")
    for _ in range(20_000):
        assert decoder.feed(piece) == []
    [frame] = decoder.feed(b"\n\n")
    assert len(frame.data) == 2_000_000


def test_one_byte_at_a_time_takes_no_more_memory_than_the_bytes() -> None:
    decoder = SseDecoder()
    tracemalloc.start()
    for _ in range(100_000):
        decoder.feed(b"x")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 400_000


@pytest.mark.parametrize("piece", [b"data: " + b"x" * 94, b"x" * 100, b"data: " + b"x" * 50 + b"\ndata:\n"])
def test_an_event_without_end_is_given_up(piece: bytes) -> None:
    decoder = SseDecoder(1000)
    assert decoder.feed(b"data: before\n\n" + piece) == [SseFrame("", b"before")]
    with pytest.raises(EventTooLong):
        _feed_for_ever(decoder, piece)
    with pytest.raises(EventTooLong):
        decoder.close()


def _feed_for_ever(decoder: SseDecoder, piece: bytes) -> None:
    for _ in range(21):
        assert decoder.feed(piece) == []


def test_what_is_complete_before_an_event_without_end_is_handed_out() -> None:
    decoder = SseDecoder(100)
    assert decoder.feed(b"data: one\n\ndata: " + b"x" * 200 + b"\n\ndata: two\n\n") == [SseFrame("", b"one")]
    with pytest.raises(EventTooLong):
        decoder.feed(b"")


def test_comments_and_unknown_lines_are_not_kept() -> None:
    decoder = SseDecoder(1000)
    for _ in range(1000):
        assert decoder.feed(b": still here\nid: 1\n") == []
    assert decoder.feed(b"data: x\n\n") == [SseFrame("", b"x")]
