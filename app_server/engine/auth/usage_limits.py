"""Usage of a ChatGPT account: its limits with their windows, and the parser for the answers of the account's service.

The service has one limit for the usual models, and one for each group of models with a separate count. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from msgspec import Struct

from app_server_protocol.encoding import Json

USUAL: Final = "codex"
"""Id of the limit for the usual models."""

MOST_LIMITS: Final = 64
"""Maximum number of limits for other models that are shown."""


class UsageWindow(Struct, frozen=True):
    """The used share of a time window."""

    used_percent: int
    minutes: int | None
    resets_at: int | None
    """End of the window in seconds since 1970; None if it is not known."""


class Credits(Struct, frozen=True):
    has_credits: bool
    unlimited: bool
    balance: str | None


class Limit(Struct, frozen=True):
    """One limit of an account, with its windows."""

    id: str
    name: str | None
    primary: UsageWindow | None
    secondary: UsageWindow | None


class AccountUsage(Struct, frozen=True):
    """The limits of an account, with that for the usual models first."""

    plan: str | None
    limits: tuple[Limit, ...]
    credits: Credits | None = None


def read_usage(body: Mapping[str, Json]) -> AccountUsage | None:
    """Return the usage in the service's answer; None if the answer has no limit."""
    if not isinstance(body.get("rate_limit"), dict):
        return None
    plan = body.get("plan_type")
    return AccountUsage(
        plan=plan if isinstance(plan, str) else None,
        limits=(_limit(USUAL, None, body["rate_limit"]), *_other_limits(body.get("additional_rate_limits"))),
        credits=_credits(body.get("credits")),
    )


def _other_limits(entries: Json) -> Iterator[Limit]:
    for entry in entries[:MOST_LIMITS] if isinstance(entries, list) else ():
        match entry:
            case {"metered_feature": str(id), "rate_limit": dict(limit)}:
                name = entry.get("limit_name")
                yield _limit(id[:200], name[:200] if isinstance(name, str) else None, limit)
            case _:
                pass


def _limit(id: str, name: str | None, limit: Mapping[str, Json]) -> Limit:
    return Limit(id, name, _window(limit.get("primary_window")), _window(limit.get("secondary_window")))


def _window(window: Json) -> UsageWindow | None:
    match window:
        case {"used_percent": int(used) | float(used)} if used is not True and 0 <= used <= 1_000_000:
            seconds, resets_at = window.get("limit_window_seconds"), window.get("reset_at")
            minutes = -(-seconds // 60) if _is_positive(seconds) else None
            return UsageWindow(round(used), minutes, resets_at if _is_positive(resets_at) else None)
        case _:
            return None


def _credits(entry: Json) -> Credits | None:
    match entry:
        case {"has_credits": bool(has), "unlimited": bool(unlimited)}:
            balance = entry.get("balance")
            return Credits(has, unlimited, balance[:200] if isinstance(balance, str) else None)
        case _:
            return None


def _is_positive(value: Json) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**53
