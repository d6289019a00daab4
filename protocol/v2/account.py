"""The account: whether and how the user is logged in, logins and logouts, and how much of it is used up."""

from enum import StrEnum
from typing import Annotated, Final, Literal

from pydantic import Field
from typing_extensions import TypeAliasType

from protocol.base import WireModel
from protocol.fields import Flag
from protocol.structs import WireStruct
from protocol.table import ClientRequest, NoParams, ServerNotification
from protocol.v2.fields import WireUnion


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


class AuthMode(StrEnum):
    APIKEY = "apikey"
    CHATGPT = "chatgpt"
    CHATGPT_AUTH_TOKENS = "chatgptAuthTokens"
    HEADERS = "headers"
    AGENT_IDENTITY = "agentIdentity"
    PERSONAL_ACCESS_TOKEN = "personalAccessToken"
    BEDROCK_API_KEY = "bedrockApiKey"
    BEDROCK_ACCESS_KEYS = "bedrockAccessKeys"


class ApiKeyAccount(WireStruct):
    type: Literal["apiKey"] = "apiKey"


class ChatgptAccount(WireStruct):
    type: Literal["chatgpt"] = "chatgpt"
    email: str | None
    plan_type: PlanType
    workspace_name: str | None = None


class AmazonBedrockAccount(WireStruct):
    type: Literal["amazonBedrock"] = "amazonBedrock"
    uses_codex_managed_credentials: bool = False


class GcpAccount(WireStruct):
    type: Literal["gcp"] = "gcp"


Account = TypeAliasType(
    "Account",
    Annotated[
        ApiKeyAccount | ChatgptAccount | AmazonBedrockAccount | GcpAccount, Field(discriminator="type")
    ],
)


class GetAccountParams(WireModel):
    refresh_token: Flag = False


class GetAccountResponse(WireStruct):
    """`account` is null where nobody is logged in or no login is needed."""

    account: Account | None = None
    user_id: str | None = None
    requires_openai_auth: bool


class ApiKeyLoginAccountParams(WireModel):
    """A key of the provider, kept as a file of the user."""

    type: Literal["apiKey"] = "apiKey"
    api_key: str = Field(repr=False)


class ChatgptLoginAccountParams(WireModel):
    """Through the browser."""

    type: Literal["chatgpt"] = "chatgpt"
    codex_streamlined_login: Flag = False


class ChatgptDeviceCodeLoginAccountParams(WireModel):
    """Through a browser on another machine, with a code."""

    type: Literal["chatgptDeviceCode"] = "chatgptDeviceCode"


LoginAccount = Annotated[
    ApiKeyLoginAccountParams | ChatgptLoginAccountParams | ChatgptDeviceCodeLoginAccountParams,
    Field(discriminator="type"),
]


class LoginAccountParams(WireUnion[LoginAccount]):
    """How to log in."""


class ApiKeyLoginAccountResponse(WireStruct):
    """The key is stored."""

    type: Literal["apiKey"] = "apiKey"


class ChatgptLoginAccountResponse(WireStruct):
    """The page to open; `account/login/completed` follows when the login ended."""

    type: Literal["chatgpt"] = "chatgpt"
    login_id: str
    auth_url: str


class ChatgptDeviceCodeLoginAccountResponse(WireStruct):
    """The page to open, and the code to type there."""

    type: Literal["chatgptDeviceCode"] = "chatgptDeviceCode"
    login_id: str
    verification_url: str
    user_code: str


LoginAccountStarted = Annotated[
    ApiKeyLoginAccountResponse | ChatgptLoginAccountResponse | ChatgptDeviceCodeLoginAccountResponse,
    Field(discriminator="type"),
]


class LoginAccountResponse(WireUnion[LoginAccountStarted]):
    """What became of the login so far."""


class CancelLoginAccountParams(WireModel):
    login_id: str


class CancelLoginAccountStatus(StrEnum):
    CANCELED = "canceled"
    NOT_FOUND = "notFound"


class CancelLoginAccountResponse(WireStruct):
    status: CancelLoginAccountStatus


class LogoutAccountResponse(WireStruct):
    pass


class AccountLoginCompletedNotification(WireStruct):
    """A login succeeded or failed; `loginId` is null for a key."""

    login_id: str | None = None
    success: bool
    error: str | None = None


class AccountUpdatedNotification(WireStruct):
    """After a login or a logout."""

    auth_mode: AuthMode | None = None
    plan_type: PlanType | None = None


class RateLimitWindow(WireStruct):
    used_percent: int
    window_duration_mins: int | None = None
    resets_at: int | None = None


class CreditsSnapshot(WireStruct):
    has_credits: bool
    unlimited: bool
    balance: str | None = None


class SpendControlLimitSnapshot(WireStruct):
    limit: str
    used: str
    remaining_percent: int
    resets_at: int


class RateLimitReachedType(StrEnum):
    RATE_LIMIT_REACHED = "rate_limit_reached"
    WORKSPACE_OWNER_CREDITS_DEPLETED = "workspace_owner_credits_depleted"
    WORKSPACE_MEMBER_CREDITS_DEPLETED = "workspace_member_credits_depleted"
    WORKSPACE_OWNER_USAGE_LIMIT_REACHED = "workspace_owner_usage_limit_reached"
    WORKSPACE_MEMBER_USAGE_LIMIT_REACHED = "workspace_member_usage_limit_reached"


class RateLimitSnapshot(WireStruct):
    """How much of each window is used."""

    limit_id: str | None = None
    limit_name: str | None = None
    normal_model_slug: str | None = None
    primary: RateLimitWindow | None = None
    secondary: RateLimitWindow | None = None
    credits: CreditsSnapshot | None = None
    individual_limit: SpendControlLimitSnapshot | None = None
    spend_control_reached: bool | None = None
    plan_type: PlanType | None = None
    rate_limit_reached_type: RateLimitReachedType | None = None


class GetAccountRateLimitsParams(WireModel):
    exclude_reset_credit_details: Flag = False


class GetAccountRateLimitsResponse(WireStruct):
    """The limits that are known, those of the usual models first."""

    ordinary_usage_allowed: bool | None = None
    rate_limits: RateLimitSnapshot
    rate_limits_by_limit_id: dict[str, RateLimitSnapshot] | None = None
    account_id: str | None = None


class AccountRateLimitsUpdatedNotification(WireStruct):
    rate_limits: RateLimitSnapshot


ACCOUNT_READ: Final = ClientRequest(
    "account/read",
    GetAccountParams,
    GetAccountResponse,
    "Whether and how the user is logged in.",
)
ACCOUNT_LOGIN_START: Final = ClientRequest(
    "account/login/start",
    LoginAccountParams,
    LoginAccountResponse,
    "Begins a login. `account/login/completed` and `account/updated` follow.",
)
ACCOUNT_LOGIN_CANCEL: Final = ClientRequest(
    "account/login/cancel",
    CancelLoginAccountParams,
    CancelLoginAccountResponse,
    "Gives up a login that was begun.",
)
ACCOUNT_LOGOUT: Final = ClientRequest(
    "account/logout",
    NoParams,
    LogoutAccountResponse,
    "Forgets the stored login. `account/updated` follows.",
)
ACCOUNT_RATE_LIMITS_READ: Final = ClientRequest(
    "account/rateLimits/read",
    GetAccountRateLimitsParams,
    GetAccountRateLimitsResponse,
    "How much of the account is used up.",
)
ACCOUNT_UPDATED: Final = ServerNotification(
    "account/updated", AccountUpdatedNotification, "After a login or a logout."
)
ACCOUNT_LOGIN_COMPLETED: Final = ServerNotification(
    "account/login/completed",
    AccountLoginCompletedNotification,
    "A login succeeded, failed or timed out.",
)
ACCOUNT_RATE_LIMITS_UPDATED: Final = ServerNotification(
    "account/rateLimits/updated",
    AccountRateLimitsUpdatedNotification,
    "How much of the account is used up.",
)
