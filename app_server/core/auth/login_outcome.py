"""How an attempt to log in ends. Apart from the attempts, which load more."""

from __future__ import annotations

from protocol.records import dataclass


@dataclass(frozen=True, slots=True)
class LoginOutcome:
    success: bool
    error: str | None = None
