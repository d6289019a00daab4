"""The tools that list and read resources of servers: their arguments and their JSON output. Pure.

`requests` sends the requests. The model receives the message of an `McpFailure` raised here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Generic, TypeVar

from msgspec import Struct
from pydantic import ValidationError
from pydantic_core import to_json

from app_server.core.mcp.faults import MAX_RESULT_CHARS
from app_server.core.mcp.interfaces import McpFailure
from app_server.core.mcp.results import known_fields
from protocol.base import Json
from protocol.mcp import BlobResourceContents, McpModel, Resource, ResourceTemplate, TextResourceContents

ALL_SERVERS: Final = "codex"
"""The server's name in events if the model named none."""

READ_RESOURCE: Final = "resources/read"

Listed = TypeVar("Listed", bound=McpModel, covariant=True)
Contents = TextResourceContents | BlobResourceContents


class ResourceKind(Struct, Generic[Listed], frozen=True):
    """One of the two lists that a server has."""

    method: str
    key: str
    """Of the list, in the server's result and in what the model is given."""
    model: type[Listed]

    def parse(self, raw: Iterable[Json]) -> tuple[Listed, ...]:
        """Return the valid entries; drop the others."""
        found: list[Listed] = []
        for one in raw:
            try:
                found.append(self.model.model_validate(known_fields(self.model, one)))
            except ValidationError:
                continue
        return tuple(found)


RESOURCES: Final = ResourceKind("resources/list", "resources", Resource)
TEMPLATES: Final = ResourceKind("resources/templates/list", "resourceTemplates", ResourceTemplate)


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
    """Return the arguments; blank texts count as missing."""
    return ListArguments(_trimmed(server), _trimmed(cursor))


def read_arguments(server: str, uri: str) -> ReadArguments:
    """Return the arguments. Raises McpFailure if one is blank, before the begin event of the call."""
    return ReadArguments(_provided("server", server), _provided("uri", uri), server)


def list_output(
    kind: ResourceKind[Listed],
    server: str | None,
    found: Iterable[tuple[str, Listed]],
    next_cursor: str | None = None,
) -> str:
    """Return a list for the model. `found` are the entries, each with its server; `server` None stands for all."""
    listed = [{"server": name, **one.to_value()} for name, one in found]
    output: dict[str, Json] = {kind.key: listed} if server is None else {"server": server, kind.key: listed}
    if next_cursor is not None:
        output["nextCursor"] = next_cursor
    return _json(output)


def read_output(server: str, uri: str, contents: Iterable[Contents]) -> str:
    """Return the contents of a resource for the model."""
    return _json({"server": server, "uri": uri, "contents": [one.to_value() for one in contents]})


def parse_contents(raw: Iterable[Json]) -> tuple[Contents, ...]:
    """Return the valid contents of a resource, truncated."""
    found: list[Contents] = []
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


def _trimmed(value: str | None) -> str | None:
    return (value or "").strip() or None


def _provided(name: str, value: str) -> str:
    trimmed = value.strip()
    if not trimmed:
        raise McpFailure(f"{name} must be provided")
    return trimmed


def _json(value: Json) -> str:
    return to_json(value).decode()
