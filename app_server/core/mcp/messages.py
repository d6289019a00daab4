"""JSON-RPC 2.0 as MCP servers write it, read leniently. Pure: bytes in, values out.

A line that is no message is None: servers print banners and stack traces where only messages belong.
Notifications are None as well, since none of them changes what a conversation was promised.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from pydantic_core import from_json, to_json

from app_server.core.mcp.contract import Answer, Incoming, Refusal, Request
from app_server.core.mcp.limits import KEPT_HEAD_BYTES, MAX_ERROR_CHARS, MAX_MESSAGE_BYTES
from protocol.base import Json

METHOD_NOT_FOUND = -32601
MAX_DEPTH = 200
_ID_IN_HEAD = re.compile(rb'"id"\s*:\s*(\d{1,15})\s*[,}]')
_TEXT_IN_HEAD = re.compile(rb'"text"\s*:\s*"([^"\\]*(?:\\(?:u[0-9a-fA-F]{4}|[^u])[^"\\]*)*)')


def encode(message: Json) -> bytes:
    """One line, its end included."""
    try:
        return to_json(message) + b"\n"
    except ValueError:  # a lone surrogate in what the model wrote
        return json.dumps(message, separators=(",", ":")).encode("ascii") + b"\n"


def parse(data: bytes) -> Iterator[Incoming]:
    """The messages of one line or body. Batches are taken apart, as the older protocol versions allow
    them."""
    value = parse_json(data)
    for one in value if isinstance(value, list) else [value]:
        message = _message(one)
        if message is not None:
            yield message


def parse_json(data: bytes) -> Json:
    """The value, or None where it is none. Text that is no Unicode is replaced, not refused."""
    try:
        return from_json(data, allow_inf_nan=False)
    except ValueError:
        if data.lstrip()[:1] not in (b"{", b"["):
            return None
    try:
        return _mended(json.loads(data.decode("utf-8", "replace"), parse_constant=_nothing), MAX_DEPTH)
    except (ValueError, RecursionError):
        return None


def _mended(value: Json, depth: int) -> Json:
    """The same with lone surrogates replaced. Raises ValueError where it is nested too deeply."""
    if depth == 0:
        raise ValueError
    match value:
        case str():
            return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        case list():
            return [_mended(one, depth - 1) for one in value]
        case dict():
            return {_mended(key, depth): _mended(one, depth - 1) for key, one in value.items()}
        case _:
            return value


def nested_too_deeply(value: Json) -> bool:
    """Whether writing it could exhaust the stack."""
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for one in level
            if isinstance(one, dict | list)
            for inner in (one.values() if isinstance(one, dict) else one)
        ]
        if not level:
            return False
    return True


def _nothing(name: str) -> Json:
    """JSON has no NaN and no infinity."""


def oversized(head: bytes, size: int) -> Incoming | None:
    """What is left of a message that was too large to keep: the beginning of its text, or why there is
    nothing."""
    found = _ID_IN_HEAD.search(head[:1024])
    if found is None or not head.lstrip().startswith(b"{"):
        return None
    number = int(found[1])
    text = _TEXT_IN_HEAD.search(head, found.end())
    if text is not None:
        begun = parse_json(b'["' + text[1] + b'"]')
        if begun:
            note = f"{begun[0]}\n[cut here: the answer had {size} bytes]"
            return Answer(number, {"content": [{"type": "text", "text": note}]})
    return Refusal(number, f"the answer of {size} bytes is over the limit of {MAX_MESSAGE_BYTES} bytes")


def _message(value: Json) -> Incoming | None:
    if not isinstance(value, dict):
        return None
    key, method = value.get("id"), value.get("method")
    if isinstance(method, str):
        if isinstance(key, bool) or not isinstance(key, int | str):
            return None
        return Request(key, method, value.get("params"))
    if type(key) is not int:  # ours are integers, so any other id answers nothing
        return None
    if "result" in value:
        return Answer(key, value["result"])
    if "error" in value:
        return _refusal(key, value["error"])
    return None


def _refusal(key: int, error: Json) -> Refusal:
    if not isinstance(error, dict):
        return Refusal(key, "Mcp error: the server gave no reason")
    code = error.get("code")
    text = f"Mcp error: {code}: {error.get('message')}"
    if error.get("data") is not None:
        text += f"({to_json(error['data']).decode()})"
    return Refusal(key, text[:MAX_ERROR_CHARS], code if type(code) is int else None)


class LineSplitter:
    """Cuts a byte stream into lines and bounds what is kept of one. Feed it chunks; it yields messages'
    bytes.

    A line over the limit is yielded as what `oversized` makes of its head.
    """

    __slots__ = ("_dropped", "_parts", "_size")

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0
        self._dropped = False

    def feed(self, chunk: bytes) -> Iterator[Incoming]:
        first, *rest = chunk.split(b"\n")
        self._keep(first)
        for part in rest:
            yield from self._finish()
            self._keep(part)

    def _keep(self, part: bytes) -> None:
        self._size += len(part)
        if self._dropped or not part:
            return
        self._parts.append(part)
        if self._size > MAX_MESSAGE_BYTES:
            self._dropped = True
            self._parts = [b"".join(self._parts)[:KEPT_HEAD_BYTES]]

    def _finish(self) -> Iterator[Incoming]:
        line, size, dropped = b"".join(self._parts), self._size, self._dropped
        self._parts, self._size, self._dropped = [], 0, False
        if dropped:
            left = oversized(line, size)
            if left is not None:
                yield left
        elif line.strip():
            yield from parse(line)
