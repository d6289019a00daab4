"""The HTTP exchange between the user's browser and the loopback listener, without I/O.

Every process of this machine and every web page can reach the port. So only a callback with this login's `state`
counts, said once and to this machine by its own name; after another one, the login continues to wait.
"""

from __future__ import annotations

import hmac
import html
import re
from collections.abc import Mapping
from http import HTTPStatus
from urllib.parse import parse_qsl, urlsplit

from msgspec import Struct

from app_server.core.auth.authorize import CALLBACK_PATH
from protocol.structs import Discreet

CANCEL_PATH = "/cancel"
"""Another program that needs the port cancels the login with a request to this path."""

MAX_HEAD_BYTES = 16 * 1024
HEAD_END = b"\r\n\r\n"
_OWN_HOST = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:\d+)?", re.ASCII)
"""A page can have another name lead to this machine; its requests name that as their host."""


class Granted(Discreet, frozen=True):
    """The user agreed; the code can be exchanged once."""

    HIDDEN = ("code",)
    code: str
    issuer: str | None = None
    """Who says so (RFC 9207); most issuers do not send it."""


class Refused(Struct, frozen=True):
    """The issuer sent the user back without a code."""

    reason: str


class CancelRequested(Struct, frozen=True):
    """A program, not a web page, requested the end of the login."""


class Ignored(Struct, frozen=True):
    """Not a callback of this login."""

    status: HTTPStatus
    text: str


Callback = Granted | Refused | CancelRequested | Ignored


def read_callback(head: bytes, state: str) -> Callback:
    """Return the meaning of a request's head for the login with this state."""
    if HEAD_END not in head:
        return Ignored(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "That request is too long.")
    lines = head.split(HEAD_END)[0].decode("latin-1").split("\r\n")
    parts = lines[0].split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
        return Ignored(HTTPStatus.BAD_REQUEST, "This is not a request that can be answered here.")
    if parts[0] != "GET":
        return Ignored(HTTPStatus.METHOD_NOT_ALLOWED, "Only GET is answered here.")
    try:
        target = urlsplit(parts[1])
        fields = parse_qsl(target.query, max_num_fields=32)
    except ValueError:
        return Ignored(HTTPStatus.BAD_REQUEST, "This address cannot be read.")
    query = dict(fields)
    if len(query) < len(fields):
        return Ignored(HTTPStatus.BAD_REQUEST, "This address says something twice.")
    if [bool(_OWN_HOST.fullmatch(host)) for host in _hosts(lines[1:])] != [True]:
        return Ignored(HTTPStatus.BAD_REQUEST, "This is not the host that was asked for.")
    if target.path == CANCEL_PATH and not _from_browser(lines[1:]):
        return CancelRequested()
    if target.path != CALLBACK_PATH:
        return Ignored(HTTPStatus.NOT_FOUND, "There is nothing here.")
    return _login_callback(query, state)


def page(status: HTTPStatus, text: str) -> bytes:
    """Return a complete, uncacheable response that displays one sentence."""
    body = (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Login</title>'
        f"<p>{html.escape(text)}</p></html>\n"
    ).encode()
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\n"
        "Content-Type: text/html; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\n"
        "Cache-Control: no-store\r\n"
        "Referrer-Policy: no-referrer\r\n"
        "Content-Security-Policy: default-src 'none'\r\n"
        "X-Content-Type-Options: nosniff\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + body


def _login_callback(query: Mapping[str, str], state: str) -> Callback:
    if not hmac.compare_digest(query.get("state", "").encode(), state.encode()):
        return Ignored(HTTPStatus.BAD_REQUEST, "This answer belongs to another login (state mismatch).")
    if query.get("error"):
        return Refused(_plain(query["error"]))
    if not query.get("code"):
        return Ignored(HTTPStatus.BAD_REQUEST, "The answer holds no authorization code.")
    return Granted(query["code"], query.get("iss"))


def _hosts(header_lines: list[str]) -> list[str]:
    headers = [line.partition(":") for line in header_lines]
    return [value.strip().lower() for name, _, value in headers if name.lower() == "host"]


def _from_browser(header_lines: list[str]) -> bool:
    """Return whether headers show that a web page sent the request: a page must not be able to cancel a login."""
    return any(line.lower().startswith(("sec-fetch-", "origin:", "referer:")) for line in header_lines)


def _plain(reason: str) -> str:
    """Return the error code, if it looks like one; other text is not displayed to the user."""
    return reason if reason.replace("_", "").isalnum() and len(reason) <= 60 else "unknown reason"
