"""Results of `app-server doctor`: one value per check. The engine makes them, the command shows them."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class CheckStatus(StrEnum):
    OK = "ok"
    WARNING = "warning"
    """The checked feature works, but only partly, or not everywhere."""
    BROKEN = "broken"
    """Conversations cannot begin, or a configured feature does not work."""


class Check(Struct, frozen=True):
    """The result of one check. The texts hold no credentials."""

    name: str
    """Name of the check: `sandbox`, `provider openai`."""
    status: CheckStatus
    found: str
    advice: str = ""
    """Advice for the user; empty if there is nothing to do."""


def ok(name: str, found: str) -> Check:
    return Check(name, CheckStatus.OK, found)


def warning(name: str, found: str, advice: str) -> Check:
    return Check(name, CheckStatus.WARNING, found, advice)


def broken(name: str, found: str, advice: str) -> Check:
    return Check(name, CheckStatus.BROKEN, found, advice)
