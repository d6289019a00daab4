"""Limits of one client, set by environment variables; docs/limits.md explains each. Fast to import."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

from protocol.records import dataclass

PREFIX = "APP_SERVER_MAX_"

SMALLEST = {
    "requests": 1,
    "conversations": 1,
    "line_bytes": 1 << 16,
    "unread_bytes": 1 << 12,
    "output_bytes": 1 << 10,
}
"""The smallest values with which a server works: a first line may have 64 KiB."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Each field is the variable `APP_SERVER_MAX_…` of that name."""

    requests: int = 20_000
    """Concurrent requests. codex 0.58 accepts 10,000 at once; a client that sends twice as many is broken."""
    conversations: int = 10_000
    """Open conversations. Each holds its history in memory; a client that needs more has forgotten to archive."""
    line_bytes: int = 64 << 20
    """Of one message. Real clients send images inline; 64 MiB is what the protocol documentation promises."""
    unread_bytes: int = 1 << 20
    """Queued for the client; above that, producers wait. A pipe takes 64 KiB at a time."""
    output_bytes: int = 1 << 20
    """Kept of each stream of a command, and of both together: half from the start, half from the end."""


def limits_of(environment: Mapping[str, str]) -> Limits:
    """Raises ValueError if a variable is invalid."""
    given = {}
    for each in fields(Limits):
        variable = PREFIX + each.name.upper()
        if text := environment.get(variable, "").strip():
            given[each.name] = _number(variable, text, SMALLEST[each.name])
    return Limits(**given)


def _number(variable: str, text: str, smallest: int) -> int:
    if text.isascii() and text.isdigit() and len(text) <= 15 and int(text) >= smallest:
        return int(text)
    raise ValueError(f"{variable} expects a number of at least {smallest}, got {text[:40]!r}")
