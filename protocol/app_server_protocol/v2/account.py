"""The account: whether and how the user is logged in, logins and logouts, and how much of it is used up."""

from typing import Annotated, Final, Literal

from pydantic import Field, RootModel
from typing_extensions import TypeAliasType

from app_server_protocol.base import WireModel
from app_server_protocol.method_table import ClientRequest, NoParams, NoResult, ServerNotification
from app_server_protocol.outgoing import WireStruct
from app_server_protocol.v2.server import PlanType, RateLimitSnapshot
from app_server_protocol.wire_fields import Flag

AuthMode = TypeAliasType(
    "AuthMode",
    Literal[
        "apikey",
        "chatgpt",
        "chatgptAuthTokens",
        "headers",
        "agentIdentity",
        "personalAccessToken",
        "bedrockApiKey",
        "bedrockAccessKeys",
    ],
)


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


class LoginAccountParams(WireModel, RootModel[LoginAccount]):
    """Kind of login, with what it needs."""


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


class LoginAccountResponse(WireModel, RootModel[LoginAccountStarted]):
    """State of the login so far."""


class CancelLoginAccountParams(WireModel):
    login_id: str


CancelLoginAccountStatus = TypeAliasType("CancelLoginAccountStatus", Literal["canceled", "notFound"])


class CancelLoginAccountResponse(WireStruct):
    status: CancelLoginAccountStatus


class AccountLoginCompletedNotification(WireStruct):
    """A login succeeded or failed; `loginId` is null for a key."""

    login_id: str | None = None
    success: bool
    error: str | None = None


AccountUpdateReason = TypeAliasType("AccountUpdateReason", Literal["workspaceRoutingReady", "unknown"])


class AccountUpdatedNotification(WireStruct):
    """After a login or a logout, whose `reason` is null."""

    auth_mode: AuthMode | None = None
    plan_type: PlanType | None = None
    reason: AccountUpdateReason | None = None


class GetAccountRateLimitsParams(WireModel):
    exclude_reset_credit_details: Flag = False


class GetAccountRateLimitsResponse(WireStruct):
    """The limits that are known, those of the usual models first."""

    ordinary_usage_allowed: bool | None = None
    rate_limits: RateLimitSnapshot
    rate_limits_by_limit_id: dict[str, RateLimitSnapshot] | None = None
    account_id: str | None = None


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
    "account/logout", NoParams, NoResult, "Forgets the stored login. `account/updated` follows."
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
