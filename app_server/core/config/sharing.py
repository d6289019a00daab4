"""Settings of a server that clients share."""

from __future__ import annotations

from msgspec import Struct


class SharingSettings(Struct, frozen=True, kw_only=True):
    """Settings of how a shared server serves; in a client's own server none of them counts."""

    shared: bool = False
    """Read before anything else is loaded, by `proxy.sharing`."""
    idle_exit_minutes: float = 30
    """So long it stays without a client and without work; 0: for ever."""
    drain_seconds: float = 60
    """So long turns may go on once it is to stop."""
    unwatched_minutes: float = 60
    """So long a turn goes on that nobody follows; 0: not at all."""
    question_hours: float = 24
    """So long a question waits for somebody who could answer it."""
