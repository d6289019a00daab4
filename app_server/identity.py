"""The user agent of the server, and the facts about its client. Fast to import."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from app_server import PROTOCOL_VERSION
from protocol.records import dataclass

if TYPE_CHECKING:
    from protocol.base import Json

ORIGINATOR = "codex_app_server"
"""Used until a client has initialized."""


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
        """The client becomes the originator when it initializes."""
        self.originator = header_safe(name) or ORIGINATOR
        self.client = header_safe(f"{name}; {version}")

    def text(self) -> str:
        base = f"{self.originator}/{self.version} ({self.system}; {self.machine}) {self.terminal}"
        return f"{base} ({self.client})" if self.client else base


@dataclass(slots=True, kw_only=True)
class ClientProfile:
    """The client's capabilities from `initialize`."""

    initialized: bool = False
    elicitation: bool = False
    """Supports elicitation requests of MCP servers."""
    experimental_api: bool = False
    """Opted in to experimental methods and fields."""
    names_capabilities: bool = False
    """Sent capabilities, whatever is in them, as clients of the thread API do."""
    opted_out: frozenset[str] = frozenset()
    """Methods of notifications that it does not want."""


@dataclass(frozen=True, slots=True)
class EarlyInitialize:
    """An `initialize` that was answered before the server was loaded; the server adopts it."""

    name: str
    version: str
    capabilities: Mapping[str, Json] | None = None
    """As sent by the client, already validated."""
    params: Mapping[str, Json] = field(default_factory=dict)
    """All parameters as sent, for an API that reads more of them."""


def own_user_agent(environment: Mapping[str, str]) -> UserAgent:
    system = os.uname()
    return UserAgent(
        version=PROTOCOL_VERSION,
        system=f"{system.sysname} {system.release}",
        machine=system.machine,
        terminal=environment.get("TERM_PROGRAM") or environment.get("TERM") or "unknown",
    )


def header_safe(text: str) -> str:
    """Replace characters that an HTTP header cannot contain."""
    return "".join(c if " " <= c <= "~" else "_" for c in text)[:200]
