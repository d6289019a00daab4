"""What messages may show of a URL."""

import pytest

from app_server.core.http.address import origin


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://user:pw@h.test:8443/v1?key=1", "https://h.test:8443"),
        ("https://h.test/v1", "https://h.test"),
        ("http://[::1]:8080/v1", "http://[::1]:8080"),
        ("http://h:port/", None),
    ],
)
def test_only_the_origin_of_a_url_is_shown(url: str, shown: str | None) -> None:
    assert origin(url) == shown
