"""What the client is sent once, although every thread has it: the limits of the account, warnings about settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field

from app_server.apis.v2.account_limits import AccountLimits
from protocol.records import dataclass


def _nothing_sent(warning: str) -> bool:
    return False


@dataclass(slots=True)
class SentOnce:
    """Of one connection."""

    limits: AccountLimits = field(default_factory=AccountLimits)
    warned: Callable[[str], bool] = _nothing_sent
    """Whether the client has been sent this warning."""
