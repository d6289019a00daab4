"""A login whose browser is on another machine: the user copies the address at which the browser ended, and enters it
here.

It is sent to the port of the login, as the browser would have sent it, and checked there. After a line that is no such
address the next one is read.
"""

from __future__ import annotations

import html
import os
import re
import sys
from collections.abc import AsyncIterator
from typing import Final
from urllib.parse import SplitResult, parse_qs, urlsplit

import anyio

from app_server.cli.admin.one_shot import eprint

MAX_LINE: Final = 16 * 1024
"""Maximum length of a line, in bytes. Terminals pass on 4 KB at most, pipes more."""
ANSWER_SECONDS: Final = 60.0
"""Timeout of the answer from the login's port, in seconds: the code is exchanged meanwhile."""
_SENTENCE = re.compile(r"<p>(.*?)</p>", re.DOTALL)


async def pass_on_pasted(authorization_url: str) -> None:
    """Read addresses from stdin until one is accepted, or until stdin ends."""
    (redirect,) = parse_qs(urlsplit(authorization_url).query)["redirect_uri"]
    eprint(
        "If the browser is on another machine: it ends at a page that cannot be shown. Copy the address of that page"
        " to here, and press Enter."
    )
    expected = urlsplit(redirect)
    async for line in _lines(sys.stdin.fileno()):
        pasted = _address(line)
        if pasted is None or (pasted.netloc, pasted.path) != (expected.netloc, expected.path):
            eprint(f"expected an address that begins with {redirect}?")
            continue
        refusal = await _send(expected, pasted.query)
        if refusal is None:
            return
        eprint(refusal)


def _address(line: str) -> SplitResult | None:
    """Return the parts of an address with a query; None if the line is none."""
    try:
        parts = urlsplit(line)
    except ValueError:
        return None
    is_plain = line.isascii() and line.isprintable() and " " not in line
    return parts if is_plain and parts.query else None


async def _send(callback: SplitResult, query: str) -> str | None:
    """Send a callback to the port of the login. Return the reason of a refusal, None if it was accepted."""
    request = f"GET {callback.path}?{query} HTTP/1.1\r\nHost: {callback.netloc}\r\nConnection: close\r\n\r\n"
    answer = b""
    try:
        with anyio.fail_after(ANSWER_SECONDS):
            stream = await anyio.connect_tcp(callback.hostname or "", callback.port or 80)
            async with stream:
                await stream.send(request.encode())
                async for chunk in stream:
                    answer += chunk
    except (OSError, TimeoutError, anyio.BrokenResourceError):
        return "the login has ended, or does not answer"
    if answer.startswith(b"HTTP/1.1 200"):
        return None
    found = _SENTENCE.search(answer.decode("utf-8", "replace"))
    return html.unescape(found[1]) if found else "the address was not accepted"


async def _lines(fd: int) -> AsyncIterator[str]:
    """Yield the lines of a descriptor. Reading can be cancelled, unlike in a thread."""
    left = b""
    while True:
        try:
            await anyio.wait_readable(fd)
        except OSError:  # a file, which never blocks
            await anyio.lowlevel.checkpoint()
        chunk = os.read(fd, MAX_LINE)
        *lines, left = (left + chunk).split(b"\n")
        for line in lines if chunk else [left]:
            text = line.decode("utf-8", "replace").strip()
            if text:
                yield text
        if not chunk or len(left) > MAX_LINE:
            return
