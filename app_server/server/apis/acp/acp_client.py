"""The client's capabilities from `initialize`, and the answer to it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from app_server import __version__

if TYPE_CHECKING:
    from app_server_protocol.encoding import Json

VERSION: Final = 1
"""The only version of the protocol that this server speaks: it is the answer to any version that a client asks for."""

MAX_VERSION: Final = 1 << 16
"""Versions that a client may ask for are lower."""

API_KEY: Final = "api-key"
CHATGPT: Final = "chat-gpt"


class AcpClient(Struct, frozen=True, kw_only=True):
    name: str = "unknown"
    version: str = "0"
    read_files: bool = False
    write_files: bool = False
    terminal_output: bool = False
    """Whether the client shows terminals that it did not start itself, from output in `_meta`."""
    notices: bool = False
    compaction: bool = False
    forms: bool = False


def parse_client(params: Mapping[str, Json]) -> AcpClient:
    """Return the capabilities that a client announces. A capability that is absent, unknown or of another type counts
    as not supported.
    """
    info, given = _table(params.get("clientInfo")), _table(params.get("clientCapabilities"))
    files, session = _table(given.get("fs")), _table(given.get("session"))
    name, version = info.get("name"), info.get("version")
    return AcpClient(
        name=name if isinstance(name, str) and name else AcpClient().name,
        version=version if isinstance(version, str) and version else AcpClient().version,
        read_files=files.get("readTextFile") is True,
        write_files=files.get("writeTextFile") is True,
        terminal_output=_table(given.get("_meta")).get("terminal_output") is True,
        notices=isinstance(session.get("notices"), dict),
        compaction=isinstance(session.get("compaction"), dict),
        forms=isinstance(_table(given.get("elicitation")).get("form"), dict),
    )


def auth_methods(environment: Mapping[str, str], *, needs_login: bool) -> list[Json]:
    """Return the ways to log in; none if the provider needs no login, because some clients insist on a login once one
    is listed.
    """
    if not needs_login:
        return []
    methods: list[Json] = [
        {
            "id": API_KEY,
            "name": "API key",
            "description": "Uses CODEX_API_KEY or OPENAI_API_KEY of the server's environment.",
        }
    ]
    if not environment.get("NO_BROWSER"):
        methods.insert(0, {"id": CHATGPT, "name": "ChatGPT", "description": "Logs in through the browser."})
    return methods


def initialize_fields(methods: Sequence[Json]) -> dict[str, Json]:
    return {
        "protocolVersion": VERSION,
        "agentCapabilities": {
            "loadSession": True,
            "promptCapabilities": {"image": True, "audio": False, "embeddedContext": True},
            "mcpCapabilities": {"http": True, "sse": False},
            "sessionCapabilities": {
                "list": {},
                "resume": {},
                "close": {},
                "delete": {},
                "additionalDirectories": {},
                "systemPrompt": {"mode": {"override": {}}},
                "fork": {},
                "title": {},
            },
            "auth": {"logout": {}},
            "_meta": {"steering": {"supported": True}},
        },
        "authMethods": list(methods),
        "agentInfo": {"name": "app-server", "title": "App Server", "version": __version__},
    }


def initialize_result(methods: Sequence[Json]) -> bytes:
    return json.dumps(initialize_fields(methods), separators=(",", ":")).encode("ascii")


def _table(value: Json) -> Mapping[str, Json]:
    return value if isinstance(value, dict) else {}
