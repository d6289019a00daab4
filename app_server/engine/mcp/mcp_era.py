"""The two eras of MCP, and what a message of the new one carries. Pure.

Revisions up to 2025-11-25 begin with a handshake. From 2026-07-28 on there is none: each request names its revision and
the client's capabilities in `_meta`, and over HTTP its headers repeat parts of its body, so that intermediaries can
route it. A tool may mark parameters whose values are repeated, too (`x-mcp-header`).
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from msgspec import Struct

from app_server.engine.mcp.mcp_errors import MAX_HEADER_CHARS, MAX_MIRRORED
from app_server_protocol.encoding import Json

LEGACY_VERSION: Final = "2025-06-18"
"""Newest revision with a handshake that this client names. It accepts any other as the answer."""
MODERN_VERSION: Final = "2026-07-28"

HEADERS_DIFFER: Final = -32020
"""Error code for headers that do not fit the body."""

_META = "io.modelcontextprotocol/"
_MARK = "x-mcp-header"
_NAMED_BY = {"tools/call": "name", "resources/read": "uri"}
"""Parameter that the header `Mcp-Name` repeats, by method."""
_NAMED_SCHEMAS = frozenset({"properties", "patternProperties", "dependentSchemas", "$defs", "definitions"})
"""Keywords whose values are schemas by name."""
_DATA = frozenset({"default", "examples", "const", "enum"})
"""Keywords whose values are no schemas."""
# Patterns are compiled when used: a first turn needs none.
_TOKEN = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_PLAIN = r"(?:[!-~](?:[ -~]*[!-~])?)?"
_ENCODED = r"=\?base64\?.*\?="
_FIRST_UNSAFE_INTEGER = 2**53


class ServerDiscovery(Struct, frozen=True):
    """A server's answer to `server/discover`."""

    versions: tuple[str, ...]
    capabilities: Json
    info: Json
    """Name and version of the server; None if it does not name itself."""


class MirroredParameter(Struct, frozen=True):
    """A parameter of a tool whose value a header repeats."""

    path: tuple[str, ...]
    """Names of the properties from the arguments to the value."""
    header: str


class InvalidMark(ValueError):
    """A tool marks parameters in a way that the protocol forbids. The text says why."""


class UnfitHeader(ValueError):
    """A value of a request cannot be repeated in a header. The text says why."""


def read_discovery(result: Json) -> ServerDiscovery | None:
    """Return the answer to `server/discover`; None if it is none."""
    if not isinstance(result, dict) or result.get("resultType") not in (None, "complete"):
        return None
    versions = _texts(result.get("supportedVersions"))
    meta = result.get("_meta")
    info = meta.get(f"{_META}serverInfo") if isinstance(meta, dict) else None
    return ServerDiscovery(versions, result.get("capabilities"), info) if versions else None


def supported_versions(error_data: Json) -> tuple[str, ...]:
    """Return the revisions that an error names as supported; none if it names none."""
    return _texts(error_data.get("supported")) if isinstance(error_data, dict) else ()


def unknown_versions(versions: Iterable[str]) -> str:
    """Return the reason for a server that speaks none of this client's revisions."""
    return (
        f"it speaks only {', '.join(versions)}; this client speaks {MODERN_VERSION} and revisions up to "
        f"{LEGACY_VERSION}"
    )


def _texts(value: Json) -> tuple[str, ...]:
    found = value[:20] if isinstance(value, list) else []
    return tuple(one for one in found if isinstance(one, str) and len(one) <= 40 and one.isprintable())


def stamped(params: Json, client: Json, capabilities: Json) -> Json:
    """Return the parameters of a request with its revision and the client's capabilities."""
    given = params.get("_meta")
    stamp = {
        f"{_META}protocolVersion": MODERN_VERSION,
        f"{_META}clientInfo": client,
        f"{_META}clientCapabilities": capabilities,
    }
    return {**params, "_meta": {**(given if isinstance(given, dict) else {}), **stamp}}


# --- headers
def message_headers(message: Json, mirrored: Mapping[str, tuple[MirroredParameter, ...]]) -> dict[str, str]:
    """Return the headers that repeat parts of a message. `mirrored` has the marked parameters by tool. Raises
    UnfitHeader.
    """
    method, params = message["method"], message.get("params") or {}
    headers = {"mcp-method": method}
    name = params.get(_NAMED_BY.get(method, ""))
    if isinstance(name, str):
        headers["mcp-name"] = _header_value(name)
    for parameter in mirrored.get(name, ()) if method == "tools/call" and isinstance(name, str) else ():
        text = _header_text(parameter, _value_at(params.get("arguments"), parameter.path))
        if text is not None:
            headers[f"mcp-param-{parameter.header.lower()}"] = _header_value(text)
    return headers


def _value_at(arguments: Json, path: tuple[str, ...]) -> Json:
    for name in path:
        arguments = arguments.get(name) if isinstance(arguments, dict) else None
    return arguments


def _header_text(parameter: MirroredParameter, value: Json) -> str | None:
    """Return the text of a value; None if the value is not repeated."""
    match value:
        case bool():
            return str(value).lower()
        case str():
            return value
        case int() | float():
            integral = isinstance(value, int) or value.is_integer()
            if not integral or abs(value) >= _FIRST_UNSAFE_INTEGER:
                where = ".".join(parameter.path)
                raise UnfitHeader(f"the parameter `{where}` must be an integer below 2^53 for a header")
            return str(int(value))
        case _:
            return None


def _header_value(text: str) -> str:
    """Return a text as it is sent in a header: what would not arrive unchanged is encoded."""
    if not re.fullmatch(_PLAIN, text) or re.fullmatch(_ENCODED, text):
        try:
            text = f"=?base64?{base64.b64encode(text.encode()).decode('ascii')}?="
        except UnicodeEncodeError:
            raise UnfitHeader("a parameter is no Unicode text and cannot be sent as a header") from None
    if len(text) > MAX_HEADER_CHARS:
        raise UnfitHeader("a parameter is too long for a header")
    return text


def mirrored_parameters(schema: Json) -> tuple[MirroredParameter, ...]:
    """Return the marked parameters of a tool with this schema. Raises InvalidMark."""
    found: dict[str, MirroredParameter] = {}
    for path, node in _marked(schema):
        header = node[_MARK]
        if not path:
            raise InvalidMark(f"`{_MARK}` is on what is no property of its arguments")
        where = ".".join(path)[:100]
        if not isinstance(header, str) or not re.fullmatch(_TOKEN, header):
            raise InvalidMark(f"`{_MARK}` of `{where}` is no name of a header")
        if node.get("type") not in ("string", "integer", "boolean"):
            raise InvalidMark(f"`{_MARK}` of `{where}` needs the type string, integer or boolean")
        if header.lower() in found:
            raise InvalidMark(f"`{_MARK}` names the header {header[:100]!r} twice")
        if len(found) == MAX_MIRRORED:
            raise InvalidMark(f"more than {MAX_MIRRORED} parameters have `{_MARK}`")
        found[header.lower()] = MirroredParameter(path, header)
    return tuple(found.values())


def _marked(schema: Json) -> Iterator[tuple[tuple[str, ...] | None, dict[str, Json]]]:
    """Yield each marked schema with its path through `properties`; the path is None if anything else leads there."""
    nodes: list[tuple[tuple[str, ...] | None, Json]] = [((), schema)]
    while nodes:
        path, node = nodes.pop()
        if isinstance(node, list):
            nodes.extend((None, one) for one in node)
        if not isinstance(node, dict):
            continue
        if _MARK in node:
            yield path, node
        for keyword, value in node.items():
            if keyword in _NAMED_SCHEMAS and isinstance(value, dict):
                through = path is not None and keyword == "properties"
                nodes.extend(((*(path or ()), name) if through else None, one) for name, one in value.items())
            elif keyword not in _DATA and keyword != _MARK:
                nodes.append((None, value))
