"""The client of this process: its name, its capabilities, the server's response to `initialize`, and its limits. Fast
to import.

The limits are set by environment variables; docs/limits.md explains each.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from app_server import PROTOCOL_VERSION
from app_server.engine.support.light_dataclasses import dataclass, field

if TYPE_CHECKING:
    from app_server_protocol.structs import Json

ORIGINATOR = "codex_app_server"
"""Originator until a client has initialized."""


@dataclass(slots=True)
class UserAgent:
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


@dataclass(slots=True)
class ClientProfile:
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
        if isinstance(extensions, dict):
            self.answers_last = extensions.get("questions") == "last"
            self.strict_parameters = extensions.get("parameters") == "strict"
        if isinstance(opted_out, list):
            self.opted_out = frozenset(name for name in opted_out if isinstance(name, str))


@dataclass(frozen=True, slots=True)
class EarlyInitialize:
    """An `initialize` that was answered before the server was loaded; the server adopts it."""

    name: str
    version: str
    capabilities: Mapping[str, Json] | None = None
    """Capabilities as sent by the client, already validated."""
    params: Mapping[str, Json] = field(default_factory=dict)
    """All parameters as sent, for an API that reads further ones."""


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


PREFIX = "APP_SERVER_MAX_"

SMALLEST = {
    "requests": 1,
    "conversations": 1,
    "line_bytes": 1 << 16,
    "unread_bytes": 1 << 12,
    "output_bytes": 1 << 10,
    "clients": 1,
    "behind_bytes": 1 << 16,
}
"""The smallest values with which a server works: a first line may have 64 KiB."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of the server. Each field is set by the variable `APP_SERVER_MAX_…` of its name."""

    requests: int | None = None
    """Maximum number of concurrent requests of one client; None if the kind of connection decides."""
    conversations: int = 10_000
    """Maximum number of open conversations. Each holds its history in memory; a client that needs more has forgotten to
    archive.
    """
    line_bytes: int = 64 << 20
    """Maximum size of one message, in bytes. Real clients send images inline; 64 MiB is what the protocol documentation
    promises.
    """
    unread_bytes: int = 1 << 20
    """Size of the lines queued for a client above which it is behind and producers wait, in bytes. A pipe takes 64 KiB
    at a time.
    """
    output_bytes: int = 1 << 20
    """Maximum size kept of each stream of a command, and of both together, in bytes: half from the start, half from the
    end.
    """
    clients: int = 256
    """Maximum number of connected clients."""
    behind_bytes: int = 16 << 20
    """Size of the queued lines above which a client is disconnected while others read, in bytes. Lines that can be
    coalesced do not count.
    """

    def requests_of(self, *, shared: bool) -> int:
        """Return the maximum number of concurrent requests of one client. codex 0.58 accepts 10,000; a client that
        sends twice as many is broken. A client that shares the server has a lower maximum, which leaves capacity to
        others.
        """
        return self.requests or (1_000 if shared else 20_000)


def limits_of(environment: Mapping[str, str]) -> Limits:
    """Return the limits according to the environment. Raises ValueError if a variable is invalid."""
    given = {}
    for name, smallest in SMALLEST.items():
        variable = PREFIX + name.upper()
        if text := environment.get(variable, "").strip():
            given[name] = _number(variable, text, smallest)
    return Limits(**given)


def _number(variable: str, text: str, smallest: int) -> int:
    if text.isascii() and text.isdigit() and len(text) <= 15 and int(text) >= smallest:
        return int(text)
    raise ValueError(f"{variable} expects a number of at least {smallest}, got {text[:40]!r}")


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
