"""The limits of the account as the provider sent them last, in whatever thread. Sent once for all threads."""

from __future__ import annotations

from protocol.v2.limits import RateLimitSnapshot


class AccountLimits:
    """Of one connection."""

    def __init__(self) -> None:
        self.latest = RateLimitSnapshot()
        self._told = RateLimitSnapshot()

    def learn(self, limits: RateLimitSnapshot, *, heard: bool) -> bool:
        """Whether that is news for the client. `heard` False: it does not follow the thread that says so."""
        self.latest = limits
        if not heard or limits == self._told:
            return False
        self._told = limits
        return True
