"""Errors of the thread API: of failed turns, with a class for programs; of requests with the id of a missing thread or
an invalid cursor; and of requests that need an account. Clients match some of these texts. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from app_server.engine.auth.credentials import AuthMethod
from app_server_protocol.engine.errors import ErrorClass, TurnError
from app_server_protocol.ids import ConversationId, parse_conversation_id
from app_server_protocol.rpc_errors import RpcError, invalid_field, invalid_request
from app_server_protocol.v2 import server as wire


def turn_error(error: TurnError) -> wire.TurnError:
    return wire.TurnError(
        message=error.message,
        codex_error_info=codex_error_info(error),
        additional_details=error.details,
    )


def retried_error(error: TurnError, attempt: int, attempts: int) -> wire.TurnError:
    """Return the error that clients show while a request is retried: the count with the reason as the message, the
    failure as its details. Its class is always that of a stream that is resumed, whatever the failure was.
    """
    details = error.message if error.details is None else f"{error.message}\n{error.details}"
    cut = TurnError(error.message, ErrorClass.RESPONSE_STREAM_DISCONNECTED, error.http_status, error.details)
    return wire.TurnError(
        message=f"Reconnecting... {attempt}/{attempts} ({error.message})",
        codex_error_info=codex_error_info(cut),
        additional_details=details,
    )


def codex_error_info(error: TurnError) -> wire.CodexErrorInfo | None:
    """Return the class of the error for clients; None if only the text of the error is known."""
    http = wire.HttpErrorStatus(http_status_code=error.http_status)
    match error.error_class:
        case None:
            return None
        case ErrorClass.HTTP_CONNECTION_FAILED:
            return wire.HttpConnectionFailedCodexErrorInfo(http_connection_failed=http)
        case ErrorClass.RESPONSE_STREAM_CONNECTION_FAILED:
            return wire.ResponseStreamConnectionFailedCodexErrorInfo(response_stream_connection_failed=http)
        case ErrorClass.RESPONSE_STREAM_DISCONNECTED:
            return wire.ResponseStreamDisconnectedCodexErrorInfo(response_stream_disconnected=http)
        case ErrorClass.RESPONSE_TOO_MANY_FAILED_ATTEMPTS:
            return wire.ResponseTooManyFailedAttemptsCodexErrorInfo(response_too_many_failed_attempts=http)
        case ErrorClass.OUTPUT_LIMIT | ErrorClass.REFUSED:
            return wire.CodexErrorKind.OTHER
        case of_same_name:
            return wire.CodexErrorKind[of_same_name.name]


def login_required(purpose: str, method: AuthMethod | None) -> RpcError:
    """Return the error for a request that needs an account of the provider; `method` is the present login: none, or an
    API key, which is not enough.
    """
    wanted = "codex account" if method is None else "chatgpt"
    return invalid_request(f"{wanted} authentication required to {purpose}", "login_required")


def parse_thread_id(text: str, field: str = "threadId") -> ConversationId:
    """Read the id of a thread. Raises RpcError."""
    parsed = parse_conversation_id(text)
    if parsed is None:
        raise invalid_field(f"invalid thread id: {text[:100]!r} is no UUID", field)
    return parsed


def thread_not_found(id: str) -> RpcError:
    """Return the error for a thread that is not loaded."""
    return invalid_request(f"thread not found: {id}", "thread_not_found")


def rollout_not_found(id: str) -> RpcError:
    """Return the error for a thread that is not stored."""
    return invalid_request(f"no rollout found for thread id {id}", "rollout_not_found")


Entry = TypeVar("Entry")


def page_by_position(
    entries: Sequence[Entry], cursor: str | None, limit: int | None
) -> tuple[tuple[Entry, ...], str | None]:
    """Return the entries of the page, and the cursor of the next one. Without a limit the page has all entries. Raises
    RpcError.
    """
    start = 0
    if cursor is not None:
        if not cursor.isascii() or not cursor.isdigit() or len(cursor) > 9 or int(cursor) > len(entries):
            raise invalid_cursor(cursor)
        start = int(cursor)
    end = len(entries) if limit is None else min(start + max(limit, 1), len(entries))
    return tuple(entries[start:end]), str(end) if end < len(entries) else None


def invalid_cursor(cursor: str) -> RpcError:
    return invalid_field(f"invalid cursor: {cursor[:100]}", "cursor")
