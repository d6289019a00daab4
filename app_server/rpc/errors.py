"""JSON-RPC errors as exceptions: what a handler raises to answer with an error."""

from __future__ import annotations

from protocol.base import Json
from protocol.jsonrpc import INTERNAL_ERROR, INVALID_REQUEST, OVERLOADED
from protocol.records import dataclass


@dataclass(frozen=True, slots=True)
class RpcError(Exception):
    """An error answer: `data` is machine-readable, `{"kind": ..., "field": ...}`."""

    code: int
    message: str
    data: Json = None


def invalid_request(message: str, kind: str = "invalid_request", field: str | None = None) -> RpcError:
    """The request cannot be served as sent; the reference uses -32600 for all of these."""
    return RpcError(INVALID_REQUEST, message, {"kind": kind, **({"field": field} if field else {})})


def not_found(what: str, name: str) -> RpcError:
    """`what` is "conversation", "subscription" …; clients match these words."""
    return invalid_request(f"{what} not found: {name}", f"{what.replace(' ', '_')}_not_found")


def internal_error(message: str, kind: str = "internal") -> RpcError:
    return RpcError(INTERNAL_ERROR, message, {"kind": kind})


def overloaded(message: str) -> RpcError:
    """Worth trying again later, unlike every other error here."""
    return RpcError(OVERLOADED, message, {"kind": "overloaded", "retryable": True})
