"""JSON-RPC messages: the envelopes, the error codes, and conversion from and to one line of bytes.

It is JSON-RPC without the `jsonrpc` member (accepted, never written) and without batches. Parsing is strict where two
readers could disagree: duplicate keys, numbers that are not JSON, ids that are neither text nor a 64-bit integer. Only
methods that are needed before any table is loaded have names here.
"""

import json
from collections.abc import Callable
from json.encoder import encode_basestring as quoted
from json.encoder import encode_basestring_ascii as quoted_ascii
from math import isfinite
from typing import Any, Final, NoReturn

from msgspec import Struct

from app_server_protocol.json_limits import may_nest_too_deeply, nested_too_deeply, read_outline

Json = Any
"""The same type as in `base`, which is not imported: it imports pydantic, and this module is needed before that is
loaded.
"""

RequestId = str | int

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = INVALID_REQUEST
"""Code of the error for an unknown method, which is an invalid request: the clients of this protocol look for that
code.
"""
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
OVERLOADED: Final = -32001

INITIALIZE: Final = "initialize"
"""First request of every connection."""

INITIALIZED: Final = "initialized"
"""Notification that the client is ready; accepted, not required."""

SESSION_UPDATE: Final = "session/update"
"""The only notification of the Agent Client Protocol; its content is in the modules `updates` and `tool_calls` of that
protocol.
"""

ECHO_LIMIT: Final = 200
"""Maximum size of client input that an error message quotes, in bytes."""

TOO_DEEP: Final = "Parse error: the line is nested too deeply"
_ONE_LINE: Final = "a message is one JSON object on one line, without headers and without HTTP"
_OTHER_FRAMINGS: Final = (b"Content-", b"GET /", b"POST /", b"Host: ")
"""Prefixes of lines from clients that frame messages as language servers do, or over HTTP."""

_BOM: Final = b"\xef\xbb\xbf"
_INT64: Final = 1 << 63


class Request(Struct, frozen=True):
    id: RequestId
    method: str
    params: Json = None


class Notification(Struct, frozen=True):
    method: str
    params: Json = None


class Response(Struct, frozen=True):
    """The client's response to a request of the server."""

    id: RequestId
    result: Json


class ErrorAnswer(Struct, frozen=True):
    """The client's error response to a request of the server."""

    id: RequestId
    code: int
    message: str
    data: Json = None


Message = Request | Notification | Response | ErrorAnswer


class ParseError(Exception):
    """A line that is not a valid message. `id` is that of the request, if it can be read, for the error response."""

    def __init__(
        self, code: int, message: str, id: RequestId | None = None, *, refuses: bool = False
    ) -> None:
        super().__init__(message)
        self.code: Final = code
        self.message: Final = message
        self.id: Final = id
        self.refuses: Final = refuses
        """Whether the line can only be a response, so that its request need not wait for another one."""


class _NotJsonError(ValueError):
    """Refused by one of the decoder's hooks: a number that JSON does not have, or that is out of range."""


class _DuplicateKeyError(ValueError):
    """An object has a key twice, so two readers may understand it differently."""


def parse_message(line: bytes) -> Message:
    """Return the message in one line (without its line end). Raises only `ParseError`."""
    try:
        text = line.removeprefix(_BOM).decode("utf-8")
    except UnicodeDecodeError:
        raise ParseError(PARSE_ERROR, "Parse error: the line is not valid UTF-8") from None
    try:
        value = _decode(text)
        if may_nest_too_deeply(text) and nested_too_deeply(value):
            return _refuse_undecodable(text, TOO_DEEP)
    except RecursionError:
        return _refuse_undecodable(text, TOO_DEEP)
    except _DuplicateKeyError:
        return _refuse_ambiguous(text)
    except _NotJsonError as error:
        return _refuse_undecodable(text, f"Parse error: {error}")
    except json.JSONDecodeError as error:
        hint = f"; {_ONE_LINE}" if line.startswith(_OTHER_FRAMINGS) else ""
        raise ParseError(PARSE_ERROR, f"Parse error: no JSON at byte {error.pos}{hint}") from None
    except ValueError:
        # The only errors left are integers of thousands of digits, which Python refuses to convert.
        return _refuse_undecodable(text, "Parse error: a number is out of range")
    if not isinstance(value, dict):
        what = "batches are not supported" if isinstance(value, list) else "a message is an object"
        raise ParseError(INVALID_REQUEST, f"Invalid request: {what}")
    return _classify(value)


def _classify(value: dict[str, Json]) -> Message:
    id_ = _read_id(value)
    if "method" in value:
        method = value["method"]
        if not isinstance(method, str):
            raise ParseError(INVALID_REQUEST, "Invalid request: `method` must be a string", id_)
        params = value.get("params")
        return Notification(method, params) if id_ is None else Request(id_, method, params)
    if id_ is None:
        raise ParseError(INVALID_REQUEST, "Invalid request: neither `method` nor `id`")
    if value.get("error") is not None:
        # An error beside a result contradicts it, and takes precedence: a refusal is never read as consent.
        return _error_answer(id_, value["error"])
    if "result" in value:
        return Response(id_, value["result"])
    text = "Invalid request: none of `method`, `result` and `error`"
    raise ParseError(INVALID_REQUEST, text, id_, refuses=True)


def _read_id(value: dict[str, Json]) -> RequestId | None:
    """Return the id, None if there is none; an id of null is refused, because it could be a request or a
    notification.
    """
    if "id" not in value:
        return None
    match value["id"]:
        case bool():
            pass
        case str(text):
            return text
        case int(number) if -_INT64 <= number < _INT64:
            return number
    raise ParseError(INVALID_REQUEST, "Invalid request: `id` must be a string or a 64-bit integer")


def _refuse_undecodable(text: str, message: str) -> ErrorAnswer:
    """Handle a line that may be JSON and exceeds the limits of decoding like one with a duplicate key, under its id."""
    outline = read_outline(text)
    try:
        id_ = None if outline.id is None else _read_id({"id": outline.id})
    except ParseError:
        id_ = None
    if id_ is not None and not outline.has_method:
        return ErrorAnswer(id_, PARSE_ERROR, message)
    raise ParseError(PARSE_ERROR, message, id_)


def _refuse_ambiguous(text: str) -> ErrorAnswer:
    """Handle a message with a duplicate key: rejects a request, and treats a response as an error response."""
    try:
        pairs = _decode_pairs(text)
    except RecursionError:
        return _refuse_undecodable(text, TOO_DEEP)
    except ValueError:  # the key was found before the line turned out to be invalid JSON
        raise ParseError(PARSE_ERROR, "Parse error: the line is not valid JSON") from None
    ids = [value for key, value in pairs if key == "id"] if isinstance(pairs, _Pairs) else []
    id_ = _read_id({"id": ids[0]}) if len(ids) == 1 else None
    if id_ is not None and all(key != "method" for key, _ in pairs):
        return ErrorAnswer(id_, INVALID_REQUEST, "an answer with a duplicate key")
    raise ParseError(INVALID_REQUEST, "Invalid request: an object has a key twice", id_)


def _error_answer(id_: RequestId, error: Json) -> ErrorAnswer:
    match error:
        case {"code": int(code), "message": str(message), **rest}:
            return ErrorAnswer(id_, code, message, rest.get("data"))
        case _:
            return ErrorAnswer(id_, INTERNAL_ERROR, "an error without code and message", error)


def _object(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise _DuplicateKeyError
    return made


class _Pairs(list[tuple[str, Json]]):
    """An object with all of its keys, including duplicates."""


def _constant(name: str) -> NoReturn:
    raise _NotJsonError(f"{name} is not JSON")


def _float(text: str) -> float:
    value = float(text)
    if not isfinite(value):
        raise _NotJsonError("a number is out of range")
    return value


_decode: Final[Callable[[str], Json]] = json.JSONDecoder(
    object_pairs_hook=_object, parse_constant=_constant, parse_float=_float
).decode
_decode_pairs: Final[Callable[[str], Json]] = json.JSONDecoder(
    object_pairs_hook=_Pairs, parse_constant=str, parse_float=str
).decode


def dump_request(id: RequestId, method: str, params: bytes | None = None) -> bytes:
    """Return a request of the server. Like all dumps: one line without its line end, `params` being JSON already."""
    tail = b"}" if params is None else b',"params":' + params + b"}"
    return b'{"id":' + _dump_id(id) + b',"method":' + _dump_text(method) + tail


def dump_notification(method: str, params: bytes | None = None, emitted_ms: int | None = None) -> bytes:
    """Return a notification. `emitted_ms` is its time in milliseconds since 1970; None if clients are not sent it."""
    tail = b"" if params is None else b',"params":' + params
    stamp = b"" if emitted_ms is None else b',"emittedAtMs":%d' % emitted_ms
    return b'{"method":' + _dump_text(method) + tail + stamp + b"}"


def dump_response(id: RequestId, result: bytes = b"{}") -> bytes:
    return b'{"id":' + _dump_id(id) + b',"result":' + result + b"}"


def dump_error(id: RequestId | None, code: int, message: str, data: Json = None) -> bytes:
    """Return an error response; `id` is null if that of the request cannot be read."""
    body = b'{"code":' + str(code).encode()
    if data is not None:
        body += b',"data":' + json.dumps(data, separators=(",", ":"), default=str).encode()
    body += b',"message":' + _dump_text(message) + b"}"
    return b'{"id":' + (b"null" if id is None else _dump_id(id)) + b',"error":' + body + b"}"


def shortened(text: str) -> str:
    """Return `text`, cut to at most `ECHO_LIMIT` bytes, to quote client input."""
    if len(text) <= ECHO_LIMIT // 4:
        return text
    raw = text.encode("utf-8", "replace")
    if len(raw) <= ECHO_LIMIT:
        return raw.decode("utf-8")
    return raw[: ECHO_LIMIT - 3].decode("utf-8", "ignore") + "…"


def _dump_id(id_: RequestId) -> bytes:
    return _dump_text(id_) if isinstance(id_, str) else str(id_).encode()


def _dump_text(text: str) -> bytes:
    try:
        return quoted(text).encode()
    except UnicodeEncodeError:
        return quoted_ascii(text).encode()


_VERSION: Final = b'{"jsonrpc":"2.0",'


def with_version(message: bytes) -> bytes:
    """Return the message, which is not an empty object, with the member `jsonrpc` before its others."""
    return _VERSION + message[1:]
