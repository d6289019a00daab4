"""The server and its client: the handshake (the client's name, its capabilities, the notifications that it opts out
of), errors, and warnings about settings.
"""

from enum import StrEnum
from typing import Annotated, Final

from typing_extensions import TypeAliasType

from app_server_protocol import jsonrpc
from app_server_protocol.base import Foreign, WireModel, unserved
from app_server_protocol.method_table import ClientNotification, ClientRequest, ServerNotification
from app_server_protocol.outgoing import WireStruct, always_written
from app_server_protocol.v2.fields import AbsolutePathBuf, experimental
from app_server_protocol.wire_fields import Flag


class ClientInfo(WireModel):
    """Name and version of the client; they go into the user agent."""

    name: str
    title: str | None = None
    version: str


class InitializeHooks(WireModel):
    """Events about which the client is asked by `hook/run`; with a matcher only those of the tools that it names."""

    events: tuple[str, ...]
    matcher: str | None = None
    timeout_sec: int | None = None
    """Time limit of an answer, in seconds; 60 if it is missing."""


class InitializeCapabilities(WireModel):
    """Capabilities of a client. Unknown names among the notifications are fine; they match whole names only."""

    experimental_api: Flag = False
    opt_out_notification_methods: tuple[str, ...] | None = None
    hooks: InitializeHooks | None = experimental()


class InitializeParams(WireModel):
    client_info: ClientInfo
    capabilities: InitializeCapabilities | None = None


class InitializeResponse(WireStruct):
    """Identity of the server, and where its home is."""

    user_agent: str
    codex_home: AbsolutePathBuf
    platform_family: str
    platform_os: str


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
    BIO_POLICY = "bioPolicy"
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
    details: str | None = always_written(None)
    path: str | None = None
    range: TextRange | None = None


INITIALIZE: Final = ClientRequest(
    "initialize",
    InitializeParams,
    InitializeResponse,
    "Opens the connection. Must be the first request, and comes once.",
)
ERROR: Final = ServerNotification("error", ErrorNotification, "Something failed within a turn.")
WARNING: Final = ServerNotification(
    "warning", WarningNotification, "Something that the user should know, and that ends nothing."
)
DEPRECATION_NOTICE: Final = ServerNotification(
    "deprecationNotice", DeprecationNoticeNotification, "Something that will not work for ever."
)
CONFIG_WARNING: Final = ServerNotification(
    "configWarning", ConfigWarningNotification, "Something in the configuration was not understood."
)
INITIALIZED: Final = ClientNotification(jsonrpc.INITIALIZED, "The client is ready. Accepted, not required.")


class PlanType(StrEnum):
    FREE = "free"
    GO = "go"
    PLUS = "plus"
    PRO = "pro"
    PROLITE = "prolite"
    PROMAX = "promax"
    TEAM = "team"
    SELF_SERVE_BUSINESS_PROLITE = "self_serve_business_prolite"
    SELF_SERVE_BUSINESS_USAGE_BASED = "self_serve_business_usage_based"
    BUSINESS = "business"
    ENT26 = "ent26"
    ENTERPRISE_CBP_AUTOMATION = "enterprise_cbp_automation"
    ENTERPRISE_CBP_USAGE_BASED = "enterprise_cbp_usage_based"
    ENTERPRISE = "enterprise"
    EDU = "edu"
    EDU_PLUS = "edu_plus"
    EDU_PRO = "edu_pro"
    SCI = "sci"
    SCI_PLUS = "sci_plus"
    UNKNOWN = "unknown"


class RateLimitWindow(WireStruct):
    used_percent: int
    window_duration_mins: int | None = None
    resets_at: int | None = None


class RateLimitSnapshot(WireStruct):
    """Share of each window that is used."""

    limit_id: str | None = None
    limit_name: str | None = None
    normal_model_slug: str | None = None
    primary: RateLimitWindow | None = None
    secondary: RateLimitWindow | None = None
    credits: Annotated[Foreign, unserved("CreditsSnapshot")] | None = None
    individual_limit: Annotated[Foreign, unserved("SpendControlLimitSnapshot")] | None = None
    spend_control_reached: bool | None = None
    plan_type: PlanType | None = None
    rate_limit_reached_type: Annotated[str, unserved("RateLimitReachedType")] | None = None


class AccountRateLimitsUpdatedNotification(WireStruct):
    rate_limits: RateLimitSnapshot


ACCOUNT_RATE_LIMITS_UPDATED: Final = ServerNotification(
    "account/rateLimits/updated",
    AccountRateLimitsUpdatedNotification,
    "How much of the account is used up.",
)
