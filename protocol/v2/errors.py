"""What goes wrong in a turn: the class of a failure, the notification of one, and other warnings."""

from enum import StrEnum

from typing_extensions import TypeAliasType

from protocol.structs import WireStruct, shown


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


class HttpErrorStatus(WireStruct):
    """The status that the provider answered with; null where there was no answer."""

    http_status_code: int | None = None


class HttpConnectionFailedCodexErrorInfo(WireStruct, forbid_unknown_fields=True):
    """The provider could not be reached, or refused the request."""

    http_connection_failed: HttpErrorStatus


class ResponseStreamConnectionFailedCodexErrorInfo(WireStruct, forbid_unknown_fields=True):
    """The stream of the answer could not be opened."""

    response_stream_connection_failed: HttpErrorStatus


class ResponseStreamDisconnectedCodexErrorInfo(WireStruct, forbid_unknown_fields=True):
    """The stream of the answer ended before the answer did."""

    response_stream_disconnected: HttpErrorStatus


class ResponseTooManyFailedAttemptsCodexErrorInfo(WireStruct, forbid_unknown_fields=True):
    """The retries are used up."""

    response_too_many_failed_attempts: HttpErrorStatus


class ActiveTurnNotSteerable(WireStruct):
    turn_kind: NonSteerableTurnKind


class ActiveTurnNotSteerableCodexErrorInfo(WireStruct, forbid_unknown_fields=True):
    """The turn that runs takes no words of the user."""

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


class TurnError(WireStruct):
    """Why a turn failed, for a person and as a class."""

    message: str
    codex_error_info: CodexErrorInfo | None = None
    additional_details: str | None = None


class ErrorNotification(WireStruct):
    """Something failed within a turn; with `willRetry` it is tried again, otherwise the turn ends."""

    error: TurnError
    will_retry: bool
    thread_id: str
    turn_id: str


class WarningNotification(WireStruct):
    thread_id: str | None = None
    message: str


class DeprecationNoticeNotification(WireStruct):
    summary: str
    details: str | None = None


class TextPosition(WireStruct):
    line: int
    column: int


class TextRange(WireStruct):
    start: TextPosition
    end: TextPosition


class ConfigWarningNotification(WireStruct, omit_defaults=True):
    """Something in the configuration was not understood; where, if that is known."""

    summary: str
    details: str | None = shown(None)
    path: str | None = None
    range: TextRange | None = None
