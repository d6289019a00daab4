"""Addresses and encodings as the wire has them."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.core.model.address import address
from app_server.core.model.content import Decoder


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


def _raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


WAYS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "Deflate": _raw_deflate,
    "deflate, gzip": lambda data: gzip.compress(zlib.compress(data)),
    "identity": bytes,
}


@given(st.sampled_from(sorted(WAYS)), st.binary(max_size=300), st.lists(st.integers(1, 40), max_size=20))
def test_an_encoded_body_is_the_body_however_it_is_cut(way: str, body: bytes, sizes: list[int]) -> None:
    encoded, decoder, said = WAYS[way](body), Decoder(way), b""
    for size in [*sizes, len(encoded)]:
        said += decoder.feed(encoded[:size])
        encoded = encoded[size:]
    assert said == body


def test_a_body_that_is_not_what_it_says() -> None:
    with pytest.raises(zlib.error):
        Decoder("gzip").feed(b"data: {}")
