"""Failures of a turn as errors with a class, which clients of the thread API tell apart. Pure."""

from __future__ import annotations

from app_server.core.errors import (
    ContextWindowExceeded,
    CoreError,
    ModelError,
    SandboxUnavailable,
    StreamDisconnected,
)
from app_server.core.model.model_errors import (
    ConnectionFailed,
    CredentialsUnavailable,
    InvalidPrompt,
    MissingVariable,
    ProviderFailing,
    QuotaExceeded,
    RetryLimitReached,
    Unauthorized,
    UnexpectedStatus,
    UsageLimitReached,
    UsageNotIncluded,
    WaitTooLong,
)
from protocol.engine.errors import ErrorClass, TurnError

OVERLOADED = frozenset({429, 503, 529})
"""Statuses by which a provider says that it has too much to do."""


def turn_error(error: BaseException) -> TurnError:
    """The error's text, which is fit for a user, and its class."""
    status = getattr(error, "status", None)
    return TurnError(str(error), _class_of(error), status if isinstance(status, int) else None)


def _class_of(error: BaseException) -> ErrorClass:
    match error:
        case ContextWindowExceeded():
            return ErrorClass.CONTEXT_WINDOW_EXCEEDED
        case UsageLimitReached() | UsageNotIncluded() | QuotaExceeded():
            return ErrorClass.USAGE_LIMIT_EXCEEDED
        case Unauthorized() | CredentialsUnavailable() | MissingVariable():
            return ErrorClass.UNAUTHORIZED
        case ProviderFailing():
            return ErrorClass.INTERNAL_SERVER_ERROR
        case RetryLimitReached() | WaitTooLong():
            return ErrorClass.RESPONSE_TOO_MANY_FAILED_ATTEMPTS
        case UnexpectedStatus(status=status):
            return _class_of_status(status)
        case InvalidPrompt():
            return ErrorClass.BAD_REQUEST
        case ConnectionFailed():
            return ErrorClass.HTTP_CONNECTION_FAILED
        case StreamDisconnected():
            return ErrorClass.RESPONSE_STREAM_DISCONNECTED
        case SandboxUnavailable():
            return ErrorClass.SANDBOX_ERROR
        case ModelError() | CoreError():
            return ErrorClass.OTHER
        case _:
            return ErrorClass.OTHER


def _class_of_status(status: int) -> ErrorClass:
    if status == 401:
        return ErrorClass.UNAUTHORIZED
    if status in OVERLOADED:
        return ErrorClass.SERVER_OVERLOADED
    if 400 <= status < 500:
        return ErrorClass.BAD_REQUEST
    return ErrorClass.INTERNAL_SERVER_ERROR if status >= 500 else ErrorClass.OTHER
