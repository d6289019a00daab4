"""Limits of the account: told once, and to whoever listens."""

from app_server.apis.v2.news import AccountLimits
from protocol.v2.account import RateLimitSnapshot, RateLimitWindow


def used(percent: int) -> RateLimitSnapshot:
    return RateLimitSnapshot(primary=RateLimitWindow(used_percent=percent))


def test_only_what_the_client_does_not_know_is_news() -> None:
    limits = AccountLimits()
    assert not limits.learn(RateLimitSnapshot(), subscribed=True)
    assert limits.learn(used(1), subscribed=True)
    assert not limits.learn(used(1), subscribed=True)
    assert limits.learn(used(2), subscribed=True)


def test_what_nobody_heard_is_told_later_and_can_be_read_at_once() -> None:
    limits = AccountLimits()
    assert not limits.learn(used(1), subscribed=False)
    assert limits.latest == used(1)
    assert limits.learn(used(1), subscribed=True)
