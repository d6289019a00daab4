"""One route: a row of a method table, its handler, and the handler's context; and a result with an effect that must not
overtake the response.

mypy checks that the parameters and the result of the handler are those of the row.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from protocol.base import Json, WireModel
from protocol.records import dataclass
from protocol.structs import Written
from protocol.table import AnyClientRequest, ClientRequest

R_co = TypeVar("R_co", bound=Written, covariant=True)


@dataclass(frozen=True, slots=True)
class HandlerResult(Generic[R_co]):
    result: R_co
    after_response: Callable[[], Awaitable[None]]
    """Runs once the response was written, before the next request of the same conversation."""


C = TypeVar("C")
P = TypeVar("P", bound=WireModel)
R = TypeVar("R", bound=Written)


@dataclass(frozen=True, slots=True)
class Route:
    """Create it with `route`, whose signature relates the types."""

    row: AnyClientRequest
    handle: Callable[[Json], Awaitable[Written | HandlerResult[Written]]]
    """Takes parameters as `row.parse` returns them."""

    @property
    def method(self) -> str:
        return self.row.method


def route(
    row: ClientRequest[P, R], handler: Callable[[C, P], Awaitable[R | HandlerResult[R]]], context: C
) -> Route:
    async def handle(params: P) -> Written | HandlerResult[Written]:
        return await handler(context, params)

    return Route(row, handle)
