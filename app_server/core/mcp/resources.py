"""The tools that list and read resources of servers: their arguments and their JSON output. Pure.

`mcp_manager` sends the requests. The model receives the message of an `McpFailure` raised here.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct
from pydantic import ValidationError
from pydantic_core import to_json

from app_server.core.mcp.faults import MAX_RESULT_CHARS
from app_server.core.mcp.interfaces import McpFailure
from app_server.core.mcp.results import known_fields
from protocol.base import Json
from protocol.mcp import BlobResourceContents, Resource, ResourceTemplate, TextResourceContents

ALL_SERVERS = "codex"
"""The server's name in events if the model named none."""

LIST_RESOURCES = "resources/list"
LIST_TEMPLATES = "resources/templates/list"
READ_RESOURCE = "resources/read"


class ListArguments(Struct, frozen=True):
    """Arguments of `list_mcp_resources` and `list_mcp_resource_templates`."""

    server: str | None = None
    cursor: str | None = None

    @property
    def invoked_server(self) -> str:
        """The server's name in the events of the call."""
        return self.server or ALL_SERVERS


class ReadArguments(Struct, frozen=True):
    """Arguments of `read_mcp_resource`."""

    server: str
    uri: str
    invoked_server: str
    """As the model wrote it, for the events of the call."""


def list_arguments(server: str | None, cursor: str | None) -> ListArguments:
    """Blank texts count as missing."""
    return ListArguments(_trimmed(server), _trimmed(cursor))


def check_cursor(arguments: ListArguments) -> None:
    """Raises McpFailure for a cursor without a server. Checked after the begin event of the call."""
    if arguments.server is None and arguments.cursor is not None:
        raise McpFailure("cursor can only be used when a server is specified")


def read_arguments(server: str, uri: str) -> ReadArguments:
    """Raises McpFailure if one is blank, before the begin event of the call."""
    return ReadArguments(_provided("server", server), _provided("uri", uri), server)


def resources_output(
    server: str | None, found: Iterable[tuple[str, Resource]], next_cursor: str | None = None
) -> str:
    """`found` are the resources, each with its server; `server` is None for all servers."""
    return _list_output(server, "resources", found, next_cursor)


def templates_output(
    server: str | None, found: Iterable[tuple[str, ResourceTemplate]], next_cursor: str | None = None
) -> str:
    return _list_output(server, "resourceTemplates", found, next_cursor)


def read_output(
    server: str, uri: str, contents: Iterable[TextResourceContents | BlobResourceContents]
) -> str:
    return _json({"server": server, "uri": uri, "contents": [one.to_value() for one in contents]})


def parse_resources(raw: Iterable[Json]) -> tuple[Resource, ...]:
    """The valid resources; drops the others."""
    found = []
    for one in raw:
        try:
            found.append(Resource.model_validate(known_fields(Resource, one)))
        except ValidationError:
            continue
    return tuple(found)


def parse_templates(raw: Iterable[Json]) -> tuple[ResourceTemplate, ...]:
    found = []
    for one in raw:
        try:
            found.append(ResourceTemplate.model_validate(known_fields(ResourceTemplate, one)))
        except ValidationError:
            continue
    return tuple(found)


def parse_contents(raw: Iterable[Json]) -> tuple[TextResourceContents | BlobResourceContents, ...]:
    """The contents of a resource, truncated."""
    found: list[TextResourceContents | BlobResourceContents] = []
    room = MAX_RESULT_CHARS
    for one in raw:
        if not isinstance(one, dict):
            continue
        try:
            if isinstance(one.get("text"), str):
                text = one["text"]
                if len(text) > room:
                    one = one | {"text": f"{text[:room]}\n[cut here: the text had {len(text)} characters]"}
                found.append(TextResourceContents.model_validate(known_fields(TextResourceContents, one)))
                room -= min(room, len(text))
            elif isinstance(one.get("blob"), str):
                size = len(one["blob"])
                if size > room:
                    note = f"[left out: {size} characters of base64]"
                    found.append(TextResourceContents(uri=str(one.get("uri")), text=note))
                    continue
                found.append(BlobResourceContents.model_validate(known_fields(BlobResourceContents, one)))
                room -= size
        except ValidationError:
            continue
    return tuple(found)


def _list_output(
    server: str | None,
    key: str,
    found: Iterable[tuple[str, Resource | ResourceTemplate]],
    next_cursor: str | None,
) -> str:
    listed = [{"server": name, **one.to_value()} for name, one in found]
    output: dict[str, Json] = {key: listed} if server is None else {"server": server, key: listed}
    if next_cursor is not None:
        output["nextCursor"] = next_cursor
    return _json(output)


def _trimmed(value: str | None) -> str | None:
    return (value or "").strip() or None


def _provided(name: str, value: str) -> str:
    trimmed = value.strip()
    if not trimmed:
        raise McpFailure(f"{name} must be provided")
    return trimmed


def _json(value: Json) -> str:
    return to_json(value).decode()
