"""Addresses as the wire has them."""

import pytest

from app_server.core.http.address import address


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
