"""The limits of the account as the provider sent them last, in whatever thread. Sent once for all threads."""

from __future__ import annotations

from protocol.v2.limits import RateLimitSnapshot


class AccountLimits:
    """Of one connection."""

    def __init__(self) -> None:
        self.latest = RateLimitSnapshot()
        self._sent = RateLimitSnapshot()

    def learn(self, limits: RateLimitSnapshot, *, subscribed: bool) -> bool:
        """Whether they are to be sent. `subscribed`: whether the client follows the thread that they came with."""
        self.latest = limits
        if not subscribed or limits == self._sent:
            return False
        self._sent = limits
        return True
