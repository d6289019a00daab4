"""What `app-server doctor` reports: one value per check. The engine makes them, the command shows them."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class CheckStatus(StrEnum):
    OK = "ok"
    WARNING = "warning"
    """It works, but less than it could, or not everywhere."""
    BROKEN = "broken"
    """Conversations cannot begin, or something that is configured does not work."""


class Check(Struct, frozen=True):
    """The result of one check. The texts hold no credentials."""

    name: str
    """`sandbox`, `provider openai`"""
    status: CheckStatus
    found: str
    advice: str = ""
    """What to do; empty if there is nothing to do."""


def ok(name: str, found: str) -> Check:
    return Check(name, CheckStatus.OK, found)


def warning(name: str, found: str, advice: str) -> Check:
    return Check(name, CheckStatus.WARNING, found, advice)


def broken(name: str, found: str, advice: str) -> Check:
    return Check(name, CheckStatus.BROKEN, found, advice)
