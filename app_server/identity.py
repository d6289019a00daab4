"""Who speaks: the name that the server gives itself, and what its client said of itself.

Imports nothing that takes time.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from app_server import PROTOCOL_VERSION
from protocol.records import dataclass

if TYPE_CHECKING:
    from protocol.base import Json

ORIGINATOR = "codex_app_server"
"""Until a client has said who it is."""


@dataclass(slots=True)
class UserAgent:
    """`<originator>/<version> (<os>; <arch>) <terminal>`, with the client's own name at the end."""

    version: str
    system: str
    machine: str
    terminal: str = "unknown"
    client: str | None = None
    originator: str = ORIGINATOR

    def introduce(self, name: str, version: str) -> None:
        """A client has initialized: it becomes the originator."""
        self.originator = header_safe(name) or ORIGINATOR
        self.client = header_safe(f"{name}; {version}")

    def text(self) -> str:
        base = f"{self.originator}/{self.version} ({self.system}; {self.machine}) {self.terminal}"
        return f"{base} ({self.client})" if self.client else base


@dataclass(slots=True, kw_only=True)
class ClientProfile:
    """What the client said of itself in `initialize`."""

    initialized: bool = False
    elicitation: bool = False
    """Answers questions of MCP servers."""
    experimental_api: bool = False
    """Opted in to what is marked as experimental."""
    opted_out: frozenset[str] = frozenset()
    """Methods of notifications that it does not want."""


@dataclass(frozen=True, slots=True)
class Introduction:
    """An `initialize` that was answered before the server was loaded, and which the server takes over."""

    name: str
    version: str
    capabilities: Mapping[str, Json] | None = None
    """As the client sent them, known to be valid."""


def own_user_agent(environment: Mapping[str, str]) -> UserAgent:
    system = os.uname()
    return UserAgent(
        version=PROTOCOL_VERSION,
        system=f"{system.sysname} {system.release}",
        machine=system.machine,
        terminal=environment.get("TERM_PROGRAM") or environment.get("TERM") or "unknown",
    )


def header_safe(text: str) -> str:
    """What an HTTP header can carry; the rest is replaced."""
    return "".join(c if " " <= c <= "~" else "_" for c in text)[:200]
