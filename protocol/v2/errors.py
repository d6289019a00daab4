"""What goes wrong in a turn: the class of a failure, the notification of one, and other warnings."""

from enum import StrEnum

from pydantic import ConfigDict
from typing_extensions import TypeAliasType

from protocol.base import WireModel, omit_none


class NonSteerableTurnKind(StrEnum):
    """Turns that take no words of the user while they run."""

    REVIEW = "review"
    COMPACT = "compact"


class CodexErrorKind(StrEnum):
    """The classes that need no further word."""

    CONTEXT_WINDOW_EXCEEDED = "contextWindowExceeded"
    USAGE_LIMIT_EXCEEDED = "usageLimitExceeded"
    RATE_LIMIT_EXCEEDED = "rateLimitExceeded"
    SERVER_OVERLOADED = "serverOverloaded"
    MODEL_NOT_FOUND = "modelNotFound"
    CYBER_POLICY = "cyberPolicy"
    INTERNAL_SERVER_ERROR = "internalServerError"
    UNAUTHORIZED = "unauthorized"
    BAD_REQUEST = "badRequest"
    SANDBOX_ERROR = "sandboxError"
    OTHER = "other"


class HttpErrorStatus(WireModel):
    """The status that the provider answered with; null where there was no answer."""

    http_status_code: int | None = None


class HttpConnectionFailedCodexErrorInfo(WireModel):
    """The provider could not be reached, or refused the request."""

    model_config = ConfigDict(extra="forbid")
    http_connection_failed: HttpErrorStatus


class ResponseStreamConnectionFailedCodexErrorInfo(WireModel):
    """The stream of the answer could not be opened."""

    model_config = ConfigDict(extra="forbid")
    response_stream_connection_failed: HttpErrorStatus


class ResponseStreamDisconnectedCodexErrorInfo(WireModel):
    """The stream of the answer ended before the answer did."""

    model_config = ConfigDict(extra="forbid")
    response_stream_disconnected: HttpErrorStatus


class ResponseTooManyFailedAttemptsCodexErrorInfo(WireModel):
    """The retries are used up."""

    model_config = ConfigDict(extra="forbid")
    response_too_many_failed_attempts: HttpErrorStatus


class ActiveTurnNotSteerable(WireModel):
    turn_kind: NonSteerableTurnKind


class ActiveTurnNotSteerableCodexErrorInfo(WireModel):
    """The turn that runs takes no words of the user."""

    model_config = ConfigDict(extra="forbid")
    active_turn_not_steerable: ActiveTurnNotSteerable


CodexErrorInfo = TypeAliasType(
    "CodexErrorInfo",
    CodexErrorKind
    | HttpConnectionFailedCodexErrorInfo
    | ResponseStreamConnectionFailedCodexErrorInfo
    | ResponseStreamDisconnectedCodexErrorInfo
    | ResponseTooManyFailedAttemptsCodexErrorInfo
    | ActiveTurnNotSteerableCodexErrorInfo,
)


class TurnError(WireModel):
    """Why a turn failed, for a person and as a class."""

    message: str
    codex_error_info: CodexErrorInfo | None = None
    additional_details: str | None = None


class ErrorNotification(WireModel):
    """Something failed within a turn; with `willRetry` it is tried again, otherwise the turn ends."""

    error: TurnError
    will_retry: bool
    thread_id: str
    turn_id: str


class WarningNotification(WireModel):
    thread_id: str | None = None
    message: str


class DeprecationNoticeNotification(WireModel):
    summary: str
    details: str | None = None


class TextPosition(WireModel):
    line: int
    column: int


class TextRange(WireModel):
    start: TextPosition
    end: TextPosition


class ConfigWarningNotification(WireModel):
    """Something in the configuration was not understood; where, if that is known."""

    summary: str
    details: str | None = None
    path: str | None = omit_none()
    range: TextRange | None = omit_none()
