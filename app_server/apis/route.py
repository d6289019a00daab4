"""One route: a row of a method table, its handler, and the handler's context; and a result with an effect that must not
overtake the response.

mypy checks that the parameters and the result of the handler are those of the row.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from msgspec import Struct

from protocol.base import WireModel
from protocol.structs import Json, Written
from protocol.table import AnyClientRequest, ClientRequest

R_co = TypeVar("R_co", bound=Written, covariant=True)


class HandlerResult(Struct, Generic[R_co], frozen=True):
    result: R_co
    after_response: Callable[[], Awaitable[None]]
    """Runs once the response was written, before the next request of the same conversation."""


C = TypeVar("C")
P = TypeVar("P", bound=WireModel)
R = TypeVar("R", bound=Written)


class Route(Struct, frozen=True):
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
