"""Compressed bodies: the same bytes however they are cut, in bounded pieces, and never far too many."""

import gzip
import zlib
from collections.abc import Callable, Iterable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app_server.core.bounds import PIECE_BYTES
from app_server.core.http import content
from app_server.core.http.content import ContentDecoder, ExpandsTooMuch, UnsupportedEncoding


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
    """Whoever reads gives way after so many pieces, also where they are empty."""
    member = gzip.compress(b"")
    assert len(list(ContentDecoder("gzip").feed(member * 1000))) >= 1000
