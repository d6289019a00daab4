"""Who is logged in."""

from __future__ import annotations

from typing import assert_never

from app_server.apis.services import ConfigSource
from app_server.core.auth.auth_manager import AuthManager, AuthMethod
from protocol.records import dataclass
from protocol.v2.account import (
    Account,
    ApiKeyAccount,
    ChatgptAccount,
    GetAccountParams,
    GetAccountResponse,
    PlanType,
)


@dataclass(frozen=True, slots=True)
class AccountContext:
    config: ConfigSource
    auth: AuthManager


async def account_read(context: AccountContext, params: GetAccountParams) -> GetAccountResponse:
    """Where the configured provider needs no login, there is no account, whatever is stored."""
    status = await context.auth.status(
        requires_openai_auth=context.config.load().provider.requires_openai_auth,
        refresh=params.refresh_token,
    )
    return GetAccountResponse(
        account=_account(context.auth, status.method), requires_openai_auth=status.requires_openai_auth
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
