"""The limits of this process, which environment variables set; docs/limits.md explains each."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

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


class Limits(Struct, frozen=True):
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
