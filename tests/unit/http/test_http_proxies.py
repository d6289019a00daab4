"""Which proxy a request goes through: one table for all that asks the web."""

import pytest

from app_server.core.http.address import proxy_for

P, Q = "http://proxy.test:3128", "http://other.test:8080"


@pytest.mark.parametrize(
    ("url", "env", "proxy"),
    [
        ("http://h.test/", {}, None),
        ("http://h.test/", {"http_proxy": P}, P),
        ("http://h.test/", {"HTTP_PROXY": P}, P),
        ("http://h.test/", {"https_proxy": P, "HTTPS_PROXY": P}, None),
        ("https://h.test/", {"http_proxy": P, "HTTP_PROXY": P}, None),
        ("https://h.test/", {"https_proxy": P}, P),
        ("https://h.test/", {"HTTPS_PROXY": P}, P),
        ("HTTPS://H.TEST/", {"HTTPS_PROXY": P}, P),
        ("https://h.test/", {"https_proxy": P, "HTTPS_PROXY": Q}, P),
        ("https://h.test/", {"https_proxy": "", "HTTPS_PROXY": Q}, Q),
        ("https://h.test/", {"https_proxy": " ", "HTTPS_PROXY": " "}, None),
        ("https://h.test/", {"all_proxy": P}, P),
        ("http://h.test/", {"ALL_PROXY": P}, P),
        ("https://h.test/", {"ALL_PROXY": P, "https_proxy": Q}, Q),
        ("http://h.test/", {"HTTP_PROXY": P, "REQUEST_METHOD": "GET"}, None),
        ("http://h.test/", {"http_proxy": P, "REQUEST_METHOD": "GET"}, P),
        ("https://h.test/", {"https_proxy": "proxy.test:3128"}, P),
        ("https://h.test/", {"https_proxy": "socks5h://s.test:1"}, "socks5h://s.test:1"),
    ],
)
def test_the_variables(url: str, env: dict[str, str], proxy: str | None) -> None:
    assert proxy_for(url, env) == proxy


@pytest.mark.parametrize(
    "host",
    [
        *("localhost", "LOCALHOST", "localhost.", "deep.localhost", "127.0.0.1", "127.8.9.1", "0.0.0.0"),
        *(
            "[::1]",
            "[::]",
            "[::ffff:127.0.0.1]",
            "localhost:8000",
            "127.0.0.1:1",
            "[::1]:1",
            "me:pass@localhost",
        ),
    ],
)
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_this_machine_is_never_asked_through_one(scheme: str, host: str) -> None:
    env = {"http_proxy": P, "https_proxy": P, "all_proxy": P}
    assert proxy_for(f"{scheme}://{host}/v1", env) is None


@pytest.mark.parametrize(
    "host", ["localhost.test", "notlocalhost", "127.0.0.1.test", "127.test", "10.0.0.1", "[fe80::1]"]
)
def test_what_only_looks_like_this_machine_is_another(host: str) -> None:
    assert proxy_for(f"http://{host}/", {"http_proxy": P}) == P


@pytest.mark.parametrize(
    ("url", "exceptions", "direct"),
    [
        ("https://h.test/", "", False),
        ("https://h.test/", "*", True),
        ("https://h.test/", "other.test, *", True),
        ("https://h.test/", "h.test", True),
        ("https://h.test/", "H.Test", True),
        ("https://H.TEST./", "h.test", True),
        ("https://h.test/", ".h.test", True),
        ("https://h.test/", "h.test.", True),
        ("https://a.h.test/", "h.test", True),
        ("https://a.b.h.test/", ".h.test", True),
        ("https://a.h.test/", "*.h.test", True),
        ("https://ah.test/", "h.test", False),
        ("https://h.test.evil.test/", "h.test", False),
        ("https://h.test/", "a.h.test", False),
        ("https://h.test/", "x,, ,h.test", True),
        ("https://h.test/", "x h.test", True),
        ("https://h.test/", ". , *.", False),
        ("https://h.test:8443/", "h.test:8443", True),
        ("https://h.test:8443/", "h.test:443", False),
        ("https://h.test/", "h.test:443", True),
        ("http://h.test/", "h.test:80", True),
        ("http://h.test/", "h.test:443", False),
        ("https://h.test/", "*:443", True),
        ("http://10.1.2.3/", "10.1.2.3", True),
        ("http://10.1.2.3:81/", "10.1.2.3:81", True),
        ("http://10.1.2.3:81/", "10.1.2.3:82", False),
        ("http://10.1.2.3/", "10.0.0.0/8", True),
        ("http://10.1.2.3/", "10.1.2.99/24", True),
        ("http://11.1.2.3/", "10.0.0.0/8", False),
        ("http://10.1.2.3/", "2.3", False),
        ("http://10.1.2.3/", "1.2.3", False),
        ("http://[fd00::5]/", "fd00::5", True),
        ("http://[fd00::5]/", "[fd00::5]", True),
        ("http://[fd00::5]:81/", "[fd00::5]:81", True),
        ("http://[fd00::5]:81/", "[fd00::5]:82", False),
        ("http://[fd00::5]/", "fd00::/8", True),
        ("http://[fe80::1%25eth0]/", "fe80::/10", True),
        ("http://[fd00::5]/", "10.0.0.0/8", False),
        ("http://h.test/", "10.0.0.0/8", False),
        ("http://10.1.2.3/", "10.0.0.0/99, [, ::::, /8", False),
    ],
)
def test_the_exceptions(url: str, exceptions: str, direct: bool) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        assert proxy_for(url, {"all_proxy": P, name: exceptions}) == (None if direct else P)


@pytest.mark.parametrize(
    "proxy", ["http://", "http://[bad", "http://h:99999999", "http://h:port", "http://h:0", ":1"]
)
def test_a_proxy_that_is_no_address(proxy: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  any of the library's own
        proxy_for("http://h.test/", {"all_proxy": proxy})
    assert proxy_for("http://localhost/", {"all_proxy": proxy}) is None


def test_small_letters_win_among_the_exceptions() -> None:
    env = {"all_proxy": P, "no_proxy": "h.test", "NO_PROXY": "other.test"}
    assert proxy_for("http://h.test/", env) is None
    assert proxy_for("http://other.test/", env) == P
