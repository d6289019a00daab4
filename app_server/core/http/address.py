"""Parses a URL for a request: the host in ASCII, the target quoted, credentials separate. Pure."""

from __future__ import annotations

import base64
from functools import lru_cache
from urllib.parse import quote, unquote, urlsplit

from protocol.records import dataclass

_KEPT = "/%:@!$&'()*+,;=~?"
"""What a target may hold as it is; the percent sign, since it may be quoted already."""

DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Address:
    scheme: str
    host: bytes
    port: int | None
    target: bytes
    host_header: bytes
    authorization: bytes | None
    """The header value for a name and a password in the URL."""


@lru_cache(maxsize=64)
def address(url: str) -> Address:
    """Raises ValueError for an invalid HTTP URL."""
    parts = urlsplit(url)
    if parts.scheme not in DEFAULT_PORTS or not parts.hostname:
        raise ValueError("not an http address")
    host = parts.hostname.encode("ascii" if parts.hostname.isascii() else "idna")
    target = quote(parts.path or "/", safe=_KEPT)
    if parts.query:
        target += "?" + quote(parts.query, safe=_KEPT)
    shown = b"[" + host + b"]" if b":" in host else host
    port = parts.port if parts.port != DEFAULT_PORTS[parts.scheme] else None
    return Address(
        scheme=parts.scheme,
        host=host,
        port=port,
        target=target.encode("ascii"),
        host_header=shown if port is None else shown + b":%d" % port,
        authorization=_basic(parts.username, parts.password),
    )


def origin(url: str) -> str | None:
    """Scheme, host and port, for messages: user, path and query may hold secrets. None for what is no URL."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", f":{parts.port}" if parts.port else ""
    except ValueError:
        return None
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}{port}"


def _basic(name: str | None, password: str | None) -> bytes | None:
    if name is None:
        return None
    pair = f"{unquote(name)}:{unquote(password or '')}"
    return b"Basic " + base64.b64encode(pair.encode())
