"""Bodies and addresses as they come on the wire: compressed, as events, cut in any way."""

import gzip
import tracemalloc
import zlib
from collections.abc import Callable, Iterable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from app_server.engine.http import content
from app_server.engine.http.address import address, origin
from app_server.engine.http.content import ContentDecoder, ExpandsTooMuch, UnsupportedEncoding
from app_server.engine.http.sse import EventTooLong, SseDecoder, SseFrame
from app_server.engine.support.worker_threads import PIECE_BYTES


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


def in_two_members(data: bytes) -> bytes:
    half = len(data) // 2
    return gzip.compress(data[:half]) + gzip.compress(data[half:]) + bytes(7)


WAYS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "x-gzip": in_two_members,
    "deflate": zlib.compress,
    "Deflate": raw_deflate,
    "identity, deflate,": raw_deflate,
    "identity": bytes,
    "utf-8": bytes,
    "": bytes,
}


def decoded(encoding: str, chunks: Iterable[bytes]) -> bytes:
    decoder, body = ContentDecoder(encoding), b""
    for chunk in chunks:
        for piece in decoder.feed(chunk):
            assert len(piece) <= PIECE_BYTES
            body += piece
    decoder.close()
    return body


def cut(data: bytes, sizes: list[int]) -> list[bytes]:
    chunks = []
    for size in [*sizes, len(data)]:
        chunks.append(data[:size])
        data = data[size:]
    return chunks


@given(st.sampled_from(sorted(WAYS)), st.binary(max_size=300), st.lists(st.integers(0, 40), max_size=20))
@example("Deflate", b"hello", [1])
@example("Deflate", b"", [1, 1])
def test_an_encoded_body_is_the_body_however_it_is_cut(way: str, body: bytes, sizes: list[int]) -> None:
    assert decoded(way, cut(WAYS[way](body), sizes)) == body


@pytest.mark.parametrize("way", sorted(WAYS))
@pytest.mark.parametrize("size", [PIECE_BYTES - 1, PIECE_BYTES, 3 * PIECE_BYTES, 3_000_000])
def test_a_large_body_comes_in_pieces(way: str, size: int) -> None:
    body = (b"0123456789" * (size // 10 + 1))[:size]
    encoded = WAYS[way](body)
    assert decoded(way, [encoded]) == body


@pytest.mark.parametrize("window", [16 + zlib.MAX_WBITS, zlib.MAX_WBITS, -zlib.MAX_WBITS])
def test_what_is_known_is_not_held_back_until_more_comes(window: int) -> None:
    packer, decoder = zlib.compressobj(wbits=window), ContentDecoder("gzip" if window > 15 else "deflate")
    for size in (10, PIECE_BYTES, 2 * PIECE_BYTES, 1_000_000):
        data = packer.compress(bytes(size)) + packer.flush(zlib.Z_SYNC_FLUSH)
        assert sum(map(len, decoder.feed(data))) == size


@pytest.mark.parametrize("way", ["gzip", "deflate", "Deflate"])
def test_a_body_that_is_cut_off_is_no_body(way: str) -> None:
    encoded = WAYS[way](b"hello " * 100)
    for length in range(1, len(encoded)):
        with pytest.raises(zlib.error, match="cut off"):
            decoded(way, [encoded[:length]])
    assert decoded(way, []) == b""


@pytest.mark.parametrize(
    ("way", "encoded"),
    [
        ("gzip", b"data: {}"),
        ("gzip", gzip.compress(b"x", mtime=0) + b"more"),
        ("deflate", zlib.compress(b"x") + b"more"),
        ("deflate", b"\xff\xff\xff"),
    ],
)
def test_a_body_that_is_not_what_it_says(way: str, encoded: bytes) -> None:
    with pytest.raises(zlib.error):
        decoded(way, [encoded])


@pytest.mark.parametrize(
    "encoding", ["gzip, gzip", "deflate,gzip", "gzip, identity, gzip", "br", "ZSTD", "gzip, x"]
)
def test_one_encoding_that_is_known_at_most(encoding: str) -> None:
    with pytest.raises(UnsupportedEncoding, match=encoding[:2].lower()):
        ContentDecoder(encoding)


@pytest.mark.parametrize("way", ["gzip", "deflate", "Deflate"])
def test_a_body_that_expands_too_much_is_given_up(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content, "UNQUESTIONED_BYTES", 1_000_000)
    sizes: list[int] = []
    with pytest.raises(ExpandsTooMuch):
        sizes.extend(map(len, ContentDecoder(way).feed(WAYS[way](bytes(50_000_000)))))
    assert 1_000_000 - PIECE_BYTES <= sum(sizes) <= 1_000_000
    assert decoded(way, [WAYS[way](bytes(1_000_000))]) == bytes(1_000_000)


def test_many_members_of_nothing_are_steps_that_can_be_counted() -> None:
    """A reader yields after a fixed number of pieces, also if they are empty."""
    member = gzip.compress(b"")
    assert len(list(ContentDecoder("gzip").feed(member * 1000))) >= 1000


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


@pytest.mark.parametrize(
    ("url", "host", "header", "target"),
    [
        ("http://127.0.0.1:8000/v1/responses", b"127.0.0.1", b"127.0.0.1:8000", b"/v1/responses"),
        (
            "https://api.test:443/v1?api-version=1&q=a b",
            b"api.test",
            b"api.test",
            b"/v1?api-version=1&q=a%20b",
        ),
        ("http://[::1]:11434", b"::1", b"[::1]:11434", b"/"),
        ("https://Bücher.test/ä%20b", b"xn--bcher-kva.test", b"xn--bcher-kva.test", b"/%C3%A4%20b"),
    ],
)
def test_what_a_url_comes_to(url: str, host: bytes, header: bytes, target: bytes) -> None:
    found = address(url)
    assert (found.host, found.host_header, found.target) == (host, header, target)
    assert found.authorization is None


def test_credentials_in_a_url_are_a_header() -> None:
    found = address("https://us%40er:p%3Ass@proxy.test/v1")
    assert found.authorization == b"Basic dXNAZXI6cDpzcw=="
    assert b"@" not in found.host_header + found.target


@pytest.mark.parametrize(
    "url", ["", "ftp://x/", "http://", "http:///v1", "https://x:port/", "http://x:99999/", "/v1"]
)
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  any of the library's own
        address(url)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://user:pw@h.test:8443/v1?key=1", "https://h.test:8443"),
        ("https://h.test:443/v1", "https://h.test"),
        ("http://[::1]:8080/v1", "http://[::1]:8080"),
        ("http://h:port/", None),
        ("nonsense", None),
    ],
)
def test_only_the_origin_of_a_url_is_shown(url: str, shown: str | None) -> None:
    assert origin(url) == shown
