"""JSON-RPC 2.0 as MCP servers write it, read leniently. Pure: bytes in, values out.

A line that is no message is None: servers print banners and stack traces where only messages belong.
Notifications are None as well, since none of them changes what a conversation was promised.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from pydantic_core import from_json, to_json

from app_server.core.bounds import MAX_DEPTH, MAX_VALUES, too_many_values
from app_server.core.mcp.contract import Answer, Incoming, Refusal, Request
from app_server.core.mcp.limits import KEPT_HEAD_BYTES, MAX_BATCH, MAX_ERROR_CHARS, MAX_MESSAGE_BYTES
from protocol.base import Json

METHOD_NOT_FOUND = -32601
_ID_IN_HEAD = re.compile(rb'"id"\s*:\s*(\d{1,15})\s*[,}]')
_TEXT_IN_HEAD = re.compile(rb'"text"\s*:\s*"([^"\\]*(?:\\(?:u[0-9a-fA-F]{4}|[^u])[^"\\]*)*)')


def encode(message: Json) -> bytes:
    """One line, its end included."""
    try:
        return to_json(message) + b"\n"
    except ValueError:  # a lone surrogate in what the model wrote
        return json.dumps(message, separators=(",", ":")).encode("ascii") + b"\n"


def parse(data: bytes) -> Iterator[Incoming]:
    """The messages of one line or body. Batches are taken apart, as the older protocol versions allow them. Of one with
    more structure than is parsed, what `oversized` makes of its head.
    """
    if too_many_values(data):
        left = oversized(data[:KEPT_HEAD_BYTES], len(data), f"{MAX_VALUES} values")
        if left is not None:
            yield left
        return
    value = parse_json(data)
    for one in value[:MAX_BATCH] if isinstance(value, list) else [value]:
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


def _nothing(name: str) -> Json:
    """JSON has no NaN and no infinity."""


def oversized(head: bytes, size: int, limit: str = f"{MAX_MESSAGE_BYTES} bytes") -> Incoming | None:
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
    return Refusal(number, f"the answer of {size} bytes is over the limit of {limit}")


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
    """Cuts a byte stream into lines and bounds what is kept of one. Feed it chunks of bounded size.

    For each line that ends it yields the messages in it, or None where there is none, so that whoever reads can count
    the lines. A line over the limit becomes what `oversized` makes of its head.
    """

    __slots__ = ("_dropped", "_line", "_size")

    def __init__(self) -> None:
        self._line = bytearray()
        """One growing buffer: a list of one-byte pieces would take forty times as much."""
        self._size = 0
        self._dropped = False

    def feed(self, chunk: bytes) -> Iterator[Incoming | None]:
        first, *rest = chunk.split(b"\n")
        self._keep(first)
        for part in rest:
            yield from self._finish()
            self._keep(part)

    def _keep(self, part: bytes) -> None:
        self._size += len(part)
        if self._dropped:
            return
        self._line += part
        if self._size > MAX_MESSAGE_BYTES:
            self._dropped = True
            self._line = self._line[:KEPT_HEAD_BYTES]

    def _finish(self) -> Iterator[Incoming | None]:
        line, size, dropped = bytes(self._line), self._size, self._dropped
        self._line, self._size, self._dropped = bytearray(), 0, False
        if dropped:
            yield oversized(line, size)
        elif line.strip():
            yield from parse(line)
            yield None
        else:
            yield None
