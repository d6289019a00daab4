"""How long to wait before the next attempt. Who retries, and how often, is decided elsewhere."""

from __future__ import annotations

import random
from collections.abc import Callable

FIRST_DELAY = 0.2
LONGEST_DELAY = 60.0
"""Doubling stops here; otherwise a dozen attempts would take a quarter of an hour."""

JITTER = 0.1
"""Up to so much is added or taken away, so that many clients do not come back at the same moment."""


def backoff(attempt: int, rng: Callable[[], float] = random.random) -> float:
    """Seconds before attempt number `attempt`, counted from 1; `rng` gives numbers from 0 up to 1."""
    doublings = min(max(attempt, 1) - 1, 16)
    delay = min(FIRST_DELAY * 2.0**doublings, LONGEST_DELAY)
    return delay * (1.0 - JITTER + 2.0 * JITTER * rng())
