"""Parses the JSON-RPC 2.0 of MCP servers, leniently. Pure: bytes in, values out.

An invalid line yields None: servers print banners and stack traces between their messages. Notifications yield None
too, except one, because this client uses no others.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from msgspec import Struct
from pydantic_core import from_json, to_json

from app_server.engine.mcp.mcp_errors import KEPT_HEAD_BYTES, MAX_BATCH, MAX_ERROR_CHARS, MAX_MESSAGE_BYTES
from app_server_protocol.encoding import Json
from app_server_protocol.json_limits import MAX_DEPTH, MAX_VALUES, too_many_values
from app_server_protocol.values import Redacted


class McpReply(Redacted, frozen=True):
    """The result of one of our requests."""

    HIDDEN = ("result",)

    id: int
    result: Json


class McpError(Redacted, frozen=True):
    """The error of one of our requests. `reason` is the text for the caller."""

    HIDDEN = ("data",)

    id: int
    reason: str
    code: int | None = None
    """Error code of the server. None if the error did not come from the server."""
    data: Json = None
    """Details of the error, as the server gave them."""
    session_lost: bool = False
    """Whether the server has forgotten the session, and has not processed the request."""


class McpServerRequest(Redacted, frozen=True):
    """A request of the server to this client."""

    HIDDEN = ("params",)

    id: int | str
    method: str
    params: Json = None


class McpToolsChanged(Struct, frozen=True):
    """The notification that the server's tools have changed."""


Incoming = McpReply | McpError | McpServerRequest | McpToolsChanged

TOOLS_CHANGED = "notifications/tools/list_changed"

METHOD_NOT_FOUND = -32601
_ID_IN_HEAD = re.compile(rb'"id"\s*:\s*(\d{1,15})\s*[,}]')
_TEXT_IN_HEAD = re.compile(rb'"text"\s*:\s*"([^"\\]*(?:\\(?:u[0-9a-fA-F]{4}|[^u])[^"\\]*)*)')


def encode(message: Json) -> bytes:
    """Return a message as one line, including its end."""
    try:
        return to_json(message) + b"\n"
    except ValueError:  # a lone surrogate in the model's arguments
        return json.dumps(message, separators=(",", ":")).encode("ascii") + b"\n"


def parse(data: bytes) -> Iterator[Incoming]:
    """Yield the messages of one line or body. A batch, which older protocol versions allow, is split. For a message
    with too many values, yield the result of `oversized`.
    """
    if too_many_values(data):
        left = oversized(data[:KEPT_HEAD_BYTES], len(data), f"{MAX_VALUES} values")
        if left is not None:
            yield left
        return
    value = parse_json(data)
    if value is None and (key := _id_of_reply(data)) is not None:
        yield McpError(key, "its answer cannot be read")
    for one in value[:MAX_BATCH] if isinstance(value, list) else [value]:
        message = _message(one)
        if message is not None:
            yield message


def parse_json(data: bytes) -> Json:
    """Return the value, or None for invalid JSON. Replaces invalid Unicode."""
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
    """Return the value with lone surrogates replaced. Raises ValueError if it is nested too deeply."""
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
    """Return None: JSON has no NaN and no infinity."""


def oversized(head: bytes, size: int, limit: str = f"{MAX_MESSAGE_BYTES} bytes") -> Incoming | None:
    """Return a replacement for a message that is too large: a result with the beginning of its text, or an error."""
    number = _id_of_reply(head)
    if number is None:
        return None
    text = _TEXT_IN_HEAD.search(head)
    if text is not None:
        begun = parse_json(b'["' + text[1] + b'"]')
        if begun:
            note = f"{begun[0]}\n[cut here: the answer had {size} bytes]"
            return McpReply(number, {"content": [{"type": "text", "text": note}]})
    return McpError(number, f"the answer of {size} bytes is over the limit of {limit}")


def _id_of_reply(data: bytes) -> int | None:
    """Return the id in the head of a reply that is not parsed; None if it begins otherwise."""
    head = data[:1024].lstrip()
    end = head.find(b"{", 1)
    members = head if end < 0 else head[:end]
    found = _ID_IN_HEAD.search(members)
    if found is None or not head.startswith(b"{") or b'"method"' in members:
        return None
    return int(found[1])


def error_of_request(key: int, body: bytes) -> McpError | None:
    """Return the error in the body of a refused HTTP request as that of the request `key`, if it names no request:
    servers that refuse a request unread do not know its id.
    """
    value = parse_json(body)
    error = value.get("error") if isinstance(value, dict) else None
    return _error_of(key, error) if isinstance(error, dict) and type(value.get("id")) is not int else None


def _message(value: Json) -> Incoming | None:
    if not isinstance(value, dict):
        return None
    key, method = value.get("id"), value.get("method")
    if isinstance(method, str):
        if method == TOOLS_CHANGED:
            return McpToolsChanged()
        if isinstance(key, bool) or not isinstance(key, int | str):
            return None
        return McpServerRequest(key, method, value.get("params"))
    if type(key) is not int:  # our ids are integers, so any other id matches no request
        return None
    if "result" in value:
        return McpReply(key, value["result"])
    if "error" in value:
        return _error_of(key, value["error"])
    return None


def _error_of(key: int, error: Json) -> McpError:
    if not isinstance(error, dict):
        return McpError(key, "Mcp error: the server gave no reason")
    code = error.get("code")
    text = f"Mcp error: {code}: {error.get('message')}"
    if error.get("data") is not None:
        text += f"({to_json(error['data']).decode()})"
    return McpError(key, text[:MAX_ERROR_CHARS], code if type(code) is int else None, error.get("data"))


class LineSplitter:
    """Splits a byte stream into lines and limits the memory for one line. Callers feed it chunks of bounded size.

    For each complete line it yields the messages in the line, and None at its end, so that the caller can let other
    tasks run after each line. For a line over the limit, it yields the result of `oversized`.
    """

    __slots__ = ("_dropped", "_line", "_size")

    def __init__(self) -> None:
        self._line = bytearray()
        """Buffer of the current line. It is one growing buffer: a list of one-byte pieces would take forty times as
        much memory.
        """
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
