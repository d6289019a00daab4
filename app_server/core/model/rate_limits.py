"""The account's limits, from a response's headers. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping

from protocol.events.tokens import RateLimitSnapshot, RateLimitWindow


def rate_limits(headers: Mapping[str, str]) -> RateLimitSnapshot:
    """Both windows; a window that the headers are silent about is None. Header names are in lower case."""
    return RateLimitSnapshot(primary=_window(headers, "primary"), secondary=_window(headers, "secondary"))


def _window(headers: Mapping[str, str], name: str) -> RateLimitWindow | None:
    try:
        used = float(headers[f"x-codex-{name}-used-percent"])
    except (KeyError, ValueError):
        return None
    minutes = _integer(headers.get(f"x-codex-{name}-window-minutes"))
    resets_at = _integer(headers.get(f"x-codex-{name}-reset-at"))
    if not math.isfinite(used) or (not used and not minutes and resets_at is None):
        return None
    return RateLimitWindow(used_percent=used, window_minutes=minutes, resets_at=resets_at)


def _integer(text: str | None) -> int | None:
    try:
        return int(text) if text is not None else None
    except ValueError:
        return None
