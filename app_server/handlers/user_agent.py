"""The name under which the server speaks to model providers, and what it tells clients of itself. Pure."""

from __future__ import annotations

from protocol.records import dataclass

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


def header_safe(text: str) -> str:
    """What an HTTP header can carry; the rest is replaced."""
    return "".join(c if " " <= c <= "~" else "_" for c in text)[:200]
