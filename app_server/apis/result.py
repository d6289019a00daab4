"""A handler's result with an effect that must not overtake the response."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from protocol.records import dataclass
from protocol.structs import Written

R = TypeVar("R", bound=Written, covariant=True)


@dataclass(frozen=True, slots=True)
class HandlerResult(Generic[R]):
    result: R
    after_response: Callable[[], Awaitable[None]]
    """Runs once the response was written, before the next request of the same conversation."""
