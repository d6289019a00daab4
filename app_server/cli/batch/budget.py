"""Shared limits of all tasks of a batch: rates, totals, prices, and leases of them for requests to models. Pure:
callers pass the time.

Each request asks for a lease of about its expected size, and returns the unused part. If a provider asks for fewer
requests, all workers slow down: rates are halved, and recover slowly.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from msgspec import Struct

from app_server.cli.batch.worker_messages import Ask, Over, Pass, TaskUsage
from app_server.client.prices import ModelPrice
from app_server_protocol.values import replace

SAVED_UP: Final = 5.0
"""Maximum saved amount of a rate that may be taken at once, in seconds of the rate."""
SLOWEST: Final = 6.0
"""Minimum rate, in requests per minute: it is enough to notice that the provider accepts more again."""
CUT_EVERY: Final = 5.0
"""Interval in which refusals halve the rates only once, in seconds: such refusals belong to requests that were sent
together.
"""
RECOVERS_IN: Final = 120.0
"""Time in which a rate recovers from zero to its full value, in seconds."""
PAUSE: Final = 1.0
"""Pause after a refusal that names no time, in seconds."""
LONGEST_PAUSE: Final = 600.0
"""Maximum pause after a refusal that names a time, in seconds. If a provider asks for more, the batch stops: people
decide when it continues.
"""
NO_LIMIT: Final = float("inf")


class SharedLimits(Struct, frozen=True, kw_only=True):
    """Limits of the command line. None if there is no limit."""

    tokens_per_minute: int | None = None
    requests_per_minute: int | None = None
    tokens: int | None = None
    cost: float | None = None
    prices: Mapping[str, ModelPrice] = {}


class Rate:
    """A token bucket: an amount per minute. If a caller takes more than is saved, the next caller waits."""

    def __init__(self, per_minute: float | None, now: float) -> None:
        self._configured = NO_LIMIT if per_minute is None else float(per_minute)
        self._full = self._present = self._configured
        """The rate to which it recovers, and the current rate, both per minute."""
        self._at, self._level = now, self._most

    @property
    def _most(self) -> float:
        return max(self._present / 60 * SAVED_UP, 1.0)

    def wait(self, now: float) -> float:
        """Return the seconds until an amount may be taken."""
        since, self._at = now - self._at, now
        self._level = min(self._most, self._level + since * self._present / 60) if since else self._level
        if self._present < self._full:
            self._present += self._full * since / RECOVERS_IN
            if self._present >= self._full:
                self._present = self._full = self._configured
        return 0.0 if self._level >= 1 else (1 - self._level) * 60 / self._present

    def take(self, amount: float) -> None:
        """Take an amount; a negative amount is returned."""
        self._level -= amount

    def halve(self, sent: float) -> None:
        """Halve the rate. If it is not limited, set it to half of `sent`, the number sent per minute."""
        if self._full == NO_LIMIT:
            self._full = self._present = max(sent, SLOWEST)
        self._present = max(self._present / 2, min(SLOWEST, self._full))
        self._level = min(self._level, self._most)


class Ledger:
    """Account of spent amounts, leases, and requests that wait for a lease."""

    def __init__(self, limits: SharedLimits, now: float, spent: Mapping[str, TaskUsage]) -> None:
        """`spent` is the usage of earlier runs, by model."""
        self.limits = limits
        self._tokens = Rate(limits.tokens_per_minute, now)
        self._requests = Rate(limits.requests_per_minute, now)
        self._waiting: dict[str, Ask] = {}
        """Waiting requests by task id, in order of arrival."""
        self._leases: dict[str, Ask] = {}
        """Leases of requests under way, by task id. Their sizes are the tokens that are reserved for them."""
        self._largest = 0
        self._sent, self._since = 0, now
        """Number of requests since the rates were halved, or since the batch began, and that time."""
        self._held_until, self._cut_at = now, now - CUT_EVERY
        self.tokens, self.cost = 0, 0.0
        for model, usage in spent.items():
            self._spend(model, usage)

    @property
    def exhausted(self) -> bool:
        """Whether a total is used up."""
        return self._left() <= 0

    def ask(self, ask: Ask) -> None:
        """Add a waiting request."""
        self._waiting[ask.id] = ask

    def wait(self, now: float) -> float:
        """Return the seconds until the next request may be sent. Return infinity if none waits, or if another request
        has to end before it. So a total is exceeded by at most one request.
        """
        if not self._waiting:
            return NO_LIMIT
        reserved = sum(lease.size for lease in self._leases.values())
        if reserved and reserved + self._size(next(iter(self._waiting.values()))) > self._left() > 0:
            return NO_LIMIT
        return max(self._held_until - now, self._requests.wait(now), self._tokens.wait(now))

    def answers(self, now: float) -> Iterator[tuple[Ask, Pass]]:
        """Yield the waiting requests that may be sent now, or never."""
        while self._waiting and (self.exhausted or self.wait(now) <= 0):
            never, ask = self.exhausted, self._waiting.pop(next(iter(self._waiting)))
            if not never:
                lease = self._leases[ask.id] = replace(ask, size=self._size(ask))
                self._requests.take(1)
                self._tokens.take(lease.size)
                self._sent += 1
            yield ask, Pass(ask.id, never)

    def over(self, over: Over, now: float) -> TaskUsage | None:
        """Record the usage of a request. Return the usage with its cost; None if the request was not sent."""
        lease = self._leases.pop(over.id, None)
        if lease is None:
            self._waiting.pop(over.id, None)
            return None
        self._largest = max(self._largest, over.usage.total)
        self._tokens.take(over.usage.total - lease.size)
        if over.limited:
            asked = PAUSE if over.retry_after is None else over.retry_after
            self._slow_down(min(max(asked, 0.0), LONGEST_PAUSE), now)
        return self._spend(over.model, over.usage)

    def held_for(self, now: float) -> float:
        """Return the remaining seconds of the pause for which a provider asked."""
        return max(self._held_until - now, 0.0)

    def gone(self, ids: Iterable[str]) -> None:
        """Forget the requests of tasks whose worker died."""
        for id in ids:
            self._waiting.pop(id, None)
            self._leases.pop(id, None)

    def _slow_down(self, pause: float, now: float) -> None:
        self._held_until = max(self._held_until, now + pause)
        if now - self._cut_at >= CUT_EVERY:
            self._requests.halve(self._sent * 60 / max(now - self._since, 1.0))
            self._tokens.halve(NO_LIMIT)
            self._cut_at, self._sent, self._since = now, 0, now

    def _size(self, ask: Ask) -> int:
        """Return the number of tokens to reserve: at least as many as the largest request took, because a model's
        answer may be long.
        """
        return max(ask.size, self._largest, 1)

    def _spend(self, model: str, usage: TaskUsage) -> TaskUsage:
        price = self.limits.prices.get(model)
        cost = None if price is None else price.cost(usage)
        self.tokens += usage.total
        self.cost += cost or 0.0
        return replace(usage, cost=cost)

    def _left(self) -> float:
        """Return the number of tokens that may still be spent. Money is converted as if all tokens were of the most
        expensive kind.
        """
        tokens = NO_LIMIT if self.limits.tokens is None else self.limits.tokens - self.tokens
        if self.limits.cost is None:
            return tokens
        prices = self.limits.prices.values()
        dearest = max(kind or 0.0 for each in prices for kind in (each.input, each.output, each.cached_input))
        money = self.limits.cost - self.cost
        return min(tokens, money * 1e6 / dearest if dearest else NO_LIMIT)
