"""Errors of this protocol: its codes, with the reason in the message, which is the part that clients show."""

from __future__ import annotations

from typing import Final

from app_server.engine.support.engine_errors import (
    AuthError,
    BeyondClientRights,
    ConfigError,
    ConversationError,
    RolloutNotFound,
)
from app_server.server.apis import error_responses
from app_server_protocol.engine.errors import ErrorClass, TurnError
from app_server_protocol.jsonrpc import INTERNAL_ERROR, INVALID_REQUEST
from app_server_protocol.rpc_errors import RpcError

METHOD_NOT_FOUND: Final = -32601
AUTH_REQUIRED: Final = -32000
NOT_FOUND: Final = -32002
REQUEST_CANCELLED: Final = -32800

UNAUTHORIZED: Final = 401


def unknown_method(method: str) -> RpcError:
    text = f"Method not found: {method[:200]}{error_responses.of_another_protocol(method, acp=True)}"
    return RpcError(METHOD_NOT_FOUND, text, {"kind": "unknown_method"})


def not_initialized() -> RpcError:
    return RpcError(INVALID_REQUEST, "Not initialized", {"kind": "not_initialized"})


def session_not_found(id: str) -> RpcError:
    data = {"kind": "session_not_found", "sessionId": id[:100]}
    return RpcError(NOT_FOUND, f"Session not found: {id[:100]}", data)


def login_needed(message: str) -> RpcError:
    return RpcError(AUTH_REQUIRED, message, {"kind": "auth_required"})


def request_cancelled() -> RpcError:
    return RpcError(REQUEST_CANCELLED, "The request was cancelled", {"kind": "request_cancelled"})


def turn_failure(error: TurnError | None) -> RpcError:
    """Return the error of a prompt whose turn failed."""
    if error is None:
        return RpcError(INTERNAL_ERROR, "The turn failed", {"kind": "turn_failed"})
    message = error.message if error.details is None else f"{error.message}\n{error.details}"
    data = {
        "kind": "turn_failed",
        "codexErrorInfo": _camel(error.error_class.value) if error.error_class else None,
        "httpStatus": error.http_status,
    }
    unauthorized = error.error_class is ErrorClass.UNAUTHORIZED or error.http_status == UNAUTHORIZED
    return RpcError(AUTH_REQUIRED if unauthorized else INTERNAL_ERROR, message, data)


def to_acp_error(error: BaseException, method: str) -> RpcError:
    """Return the error response for an exception that was raised while serving `method`."""
    if isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        return to_acp_error(error.exceptions[0], method)
    match error:
        case RolloutNotFound():
            return RpcError(NOT_FOUND, str(error), {"kind": "session_not_found"})
        case AuthError():
            return login_needed(str(error))
        case BeyondClientRights():
            return error_responses.to_rpc_error(error, method)
        case ConfigError():
            return RpcError(INTERNAL_ERROR, str(error), {"kind": "config"})
        case ConversationError():
            return RpcError(INTERNAL_ERROR, str(error), {"kind": "conversation"})
        case _:
            return error_responses.to_rpc_error(error, method)


def _camel(word: str) -> str:
    first, *rest = word.split("_")
    return first + "".join(part.capitalize() for part in rest)
