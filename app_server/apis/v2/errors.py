"""Failures of the engine as errors of the thread API: a text for a person, and a class for programs. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from protocol.engine.errors import ErrorClass, TurnError
from protocol.v2 import errors as wire
from protocol.v2.errors import CodexErrorInfo, CodexErrorKind, HttpErrorStatus


def turn_error(error: TurnError) -> wire.TurnError:
    return wire.TurnError(
        message=error.message,
        codex_error_info=codex_error_info(error),
        additional_details=error.details,
    )


def retried_error(error: TurnError, attempt: int, attempts: int) -> wire.TurnError:
    """What clients show while a request is made anew: the count as the message, the failure as its details. Whatever
    it was, its class is that of a stream which is taken up again.
    """
    details = error.message if error.details is None else f"{error.message}\n{error.details}"
    cut = replace(error, error_class=ErrorClass.RESPONSE_STREAM_DISCONNECTED)
    return wire.TurnError(
        message=f"Reconnecting... {attempt}/{attempts}",
        codex_error_info=codex_error_info(cut),
        additional_details=details,
    )


def codex_error_info(error: TurnError) -> CodexErrorInfo | None:  # noqa: C901 - one case for each class
    """None where nothing but the text is known."""
    http = HttpErrorStatus(http_status_code=error.http_status)
    match error.error_class:
        case None:
            return None
        case ErrorClass.CONTEXT_WINDOW_EXCEEDED:
            return CodexErrorKind.CONTEXT_WINDOW_EXCEEDED
        case ErrorClass.USAGE_LIMIT_EXCEEDED:
            return CodexErrorKind.USAGE_LIMIT_EXCEEDED
        case ErrorClass.RATE_LIMIT_EXCEEDED:
            return CodexErrorKind.RATE_LIMIT_EXCEEDED
        case ErrorClass.SERVER_OVERLOADED:
            return CodexErrorKind.SERVER_OVERLOADED
        case ErrorClass.CYBER_POLICY:
            return CodexErrorKind.CYBER_POLICY
        case ErrorClass.INTERNAL_SERVER_ERROR:
            return CodexErrorKind.INTERNAL_SERVER_ERROR
        case ErrorClass.UNAUTHORIZED:
            return CodexErrorKind.UNAUTHORIZED
        case ErrorClass.BAD_REQUEST:
            return CodexErrorKind.BAD_REQUEST
        case ErrorClass.SANDBOX_ERROR:
            return CodexErrorKind.SANDBOX_ERROR
        case ErrorClass.HTTP_CONNECTION_FAILED:
            return wire.HttpConnectionFailedCodexErrorInfo(http_connection_failed=http)
        case ErrorClass.RESPONSE_STREAM_CONNECTION_FAILED:
            return wire.ResponseStreamConnectionFailedCodexErrorInfo(response_stream_connection_failed=http)
        case ErrorClass.RESPONSE_STREAM_DISCONNECTED:
            return wire.ResponseStreamDisconnectedCodexErrorInfo(response_stream_disconnected=http)
        case ErrorClass.RESPONSE_TOO_MANY_FAILED_ATTEMPTS:
            return wire.ResponseTooManyFailedAttemptsCodexErrorInfo(response_too_many_failed_attempts=http)
        case ErrorClass.OTHER | ErrorClass.OUTPUT_LIMIT | ErrorClass.REFUSED:
            return CodexErrorKind.OTHER
        case _:
            assert_never(error.error_class)
