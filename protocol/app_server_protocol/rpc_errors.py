"""JSON-RPC errors as exceptions, which handlers raise to respond with an error."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app_server_protocol.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, OVERLOADED

if TYPE_CHECKING:
    from app_server_protocol.encoding import Json


class RpcError(Exception):
    """An error response: `data` is machine-readable, `{"kind": ..., "field": ...}`."""

    def __init__(self, code: int, message: str, data: Json = None) -> None:
        super().__init__(code, message, data)
        self.code, self.message, self.data = code, message, data


def invalid_request(message: str, kind: str = "invalid_request", field: str | None = None) -> RpcError:
    """Return the error for a request that cannot be served as sent; codex 0.58 uses -32600 for all of these."""
    return RpcError(INVALID_REQUEST, message, _about(kind, field))


def invalid_field(message: str, field: str | None = None) -> RpcError:
    """Return the error for an invalid parameter, with the code of `invalid_request`."""
    return invalid_request(message, "invalid_params", field)


def invalid_params(message: str, field: str | None = None, kind: str = "invalid_params") -> RpcError:
    """Return the error for an invalid parameter, with the code that JSON-RPC has for it, for methods whose clients
    expect it.
    """
    return RpcError(INVALID_PARAMS, message, _about(kind, field))


def _about(kind: str, field: str | None) -> Json:
    return {"kind": kind, **({"field": field} if field else {})}


def not_found(what: str, name: str) -> RpcError:
    """Return the error for an unknown id. `what` is "conversation", "subscription" …; clients match these words."""
    return invalid_request(f"{what} not found: {name}", f"{what.replace(' ', '_')}_not_found")


def internal_error(message: str, kind: str = "internal") -> RpcError:
    return RpcError(INTERNAL_ERROR, message, {"kind": kind})


def overloaded(message: str) -> RpcError:
    """Return the error for a request that may be retried: the only retryable error here."""
    return RpcError(OVERLOADED, message, {"kind": "overloaded", "retryable": True})
