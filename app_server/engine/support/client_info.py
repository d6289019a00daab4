"""The client of a connection: its name, its capabilities, and the server's response to `initialize`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from app_server import PROTOCOL_VERSION

if TYPE_CHECKING:
    from app_server_protocol.encoding import Json

ORIGINATOR = "codex_app_server"
"""Originator until a client has initialized."""


class UserAgent(Struct):
    """`<originator>/<version> (<os>; <arch>) <terminal>`, with the client's own name at the end."""

    version: str
    system: str
    machine: str
    terminal: str = "unknown"
    client: str | None = None
    originator: str = ORIGINATOR

    def set_client(self, name: str, version: str) -> None:
        """Make the client that initializes the originator."""
        self.originator = header_safe(name) or ORIGINATOR
        self.client = header_safe(f"{name}; {version}")

    def text(self) -> str:
        base = f"{self.originator}/{self.version} ({self.system}; {self.machine}) {self.terminal}"
        return f"{base} ({self.client})" if self.client else base


class ClientProfile(Struct):
    """The client's capabilities from `initialize`."""

    initialized: bool = False
    elicitation: bool = False
    """Whether the client answers elicitation requests of MCP servers; in the conversation API, `elicitationRequest`."""
    experimental_api: bool = False
    """Whether the client has opted in to experimental methods and fields."""
    names_capabilities: bool = False
    """Whether the client has sent capabilities, even empty ones, as clients of the thread API do."""
    opted_out: frozenset[str] = frozenset()
    """Methods of notifications that the client has opted out of."""
    strict_parameters: bool = False
    """Whether a request is refused if its parameters are misspelt or unknown, or name a folder that does not exist."""
    hooks: Json = None
    """Callbacks that the client wants, as it announced them; None if it wants none. An API reads them."""
    answers_last: bool = False
    """Whether the client leaves questions to other clients: it is asked only if there are no others."""

    def announce(self, capabilities: Mapping[str, Json] | None) -> None:
        """Store the known capabilities; None if the client sent none. Unknown names and values of another shape are
        ignored: they may have a meaning for other servers, and a client that cannot even initialize is of no use to its
        user.
        """
        given = capabilities or {}
        opted_out, extensions = given.get("optOutNotificationMethods"), given.get("extensions")
        self.names_capabilities = capabilities is not None
        self.elicitation = given.get("elicitation") is True
        self.experimental_api = given.get("experimentalApi") is True
        self.hooks = given.get("hooks") if self.experimental_api else None
        if isinstance(extensions, dict):
            self.answers_last = extensions.get("questions") == "last"
            self.strict_parameters = extensions.get("parameters") == "strict"
        if isinstance(opted_out, list):
            self.opted_out = frozenset(name for name in opted_out if isinstance(name, str))


def own_user_agent(environment: Mapping[str, str]) -> UserAgent:
    system = os.uname()
    return UserAgent(
        version=PROTOCOL_VERSION,
        system=f"{system.sysname} {system.release}",
        machine=system.machine,
        terminal=environment.get("TERM_PROGRAM") or environment.get("TERM") or "unknown",
    )


def header_safe(text: str) -> str:
    """Return the text with characters replaced that an HTTP header cannot contain."""
    return "".join(c if " " <= c <= "~" else "_" for c in text)[:200]


def initialize_result(user_agent: str, home: Path, *, capabilities: bool) -> bytes:
    """Return the result of `initialize`. Clients of the conversation API get the user agent only; clients that announce
    capabilities are newer, and need the server's home and platform (docs/adr/0029).
    """
    result = {"userAgent": user_agent}
    if capabilities:
        result |= {"codexHome": str(home), "platformFamily": "unix", "platformOs": platform_os()}
    return json.dumps(result, separators=(",", ":")).encode("ascii")


def platform_os() -> str:
    return "macos" if sys.platform == "darwin" else "linux"
