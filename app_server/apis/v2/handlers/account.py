"""Who is logged in, and how much of the account is used up."""

from __future__ import annotations

from typing import assert_never

from app_server.apis.services import ConfigSource
from app_server.apis.v2.account_errors import login_required
from app_server.apis.v2.account_limits import AccountLimits
from app_server.core.auth.auth_manager import AuthManager
from app_server.core.auth.home_login import AuthMethod
from protocol.records import dataclass
from protocol.v2.account import (
    Account,
    ApiKeyAccount,
    ChatgptAccount,
    GetAccountParams,
    GetAccountResponse,
    PlanType,
)
from protocol.v2.limits import GetAccountRateLimitsParams, GetAccountRateLimitsResponse


@dataclass(frozen=True, slots=True)
class AccountContext:
    config: ConfigSource
    auth: AuthManager
    limits: AccountLimits


async def account_read(context: AccountContext, params: GetAccountParams) -> GetAccountResponse:
    """Where the configured provider needs no login, there is no account, whatever is stored."""
    config = context.config.load()
    context.auth.follow(config.login)
    status = await context.auth.status(
        requires_openai_auth=config.provider.requires_openai_auth, refresh=params.refresh_token
    )
    return GetAccountResponse(
        account=_account(context.auth, status.method), requires_openai_auth=status.requires_openai_auth
    )


async def account_rate_limits_read(
    context: AccountContext, params: GetAccountRateLimitsParams
) -> GetAccountRateLimitsResponse:
    """As the provider sent them with its last answer here; it is not asked for them alone."""
    method = context.auth.method()
    if method is not AuthMethod.CHATGPT:
        raise login_required("read rate limits", method)
    claims = context.auth.identity()
    return GetAccountRateLimitsResponse(
        rate_limits=context.limits.latest, account_id=claims.account_id if claims else None
    )


def _account(auth: AuthManager, method: AuthMethod | None) -> Account | None:
    match method:
        case None:
            return None
        case AuthMethod.API_KEY:
            return ApiKeyAccount()
        case AuthMethod.CHATGPT:
            claims = auth.identity()
            return ChatgptAccount(
                email=claims.email if claims else None,
                plan_type=plan_type(claims.plan_type if claims else None),
            )
        case _:
            assert_never(method)


def plan_type(word: str | None) -> PlanType:
    """As the login calls it; plans come and go."""
    try:
        return PlanType((word or "").lower())
    except ValueError:
        return PlanType.UNKNOWN
