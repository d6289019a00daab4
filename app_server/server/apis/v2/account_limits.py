"""The limits of the account, which all threads of a server and the requests about the account share. Pure."""

from __future__ import annotations

import msgspec

from app_server_protocol.v2.server import RateLimitSnapshot


class AccountLimits(msgspec.Struct):
    """Used shares of the account, according to the provider's last response."""

    latest: RateLimitSnapshot = msgspec.field(default_factory=RateLimitSnapshot)
