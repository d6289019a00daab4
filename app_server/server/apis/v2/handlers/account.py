"""The login and the usage of the account. Each login ends with `account/login/completed`; if it changed the account,
`account/updated` follows.

Some methods could be served by the provider's own service only, and clients call them nevertheless. They are refused
here. They are in no table; any method that is not listed here is refused as an unknown method.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final
from uuid import UUID

from app_server.engine.auth.accounts import Accounts, Flow, OpenLogin
from app_server.engine.auth.credentials import AuthMethod, LoginOutcome
from app_server.engine.support.engine_errors import AuthError
from app_server.server.apis.contexts import ConnectionContext
from app_server.server.apis.router import Route, route
from app_server.server.apis.v2.account_limits import AccountLimits
from app_server.server.apis.v2.thread_notifier import to_client, to_everybody
from app_server.server.apis.v2.v2_errors import login_required
from app_server_protocol.encoding import Json
from app_server_protocol.jsonrpc import INTERNAL_ERROR
from app_server_protocol.method_table import ClientRequest, NoParams, NoResult
from app_server_protocol.rpc_errors import RpcError, invalid_field, invalid_request
from app_server_protocol.v2 import account as wire
from app_server_protocol.v2.server import PlanType, RateLimitSnapshot, RateLimitWindow
from app_server_protocol.wire_fields import unknown_method

if TYPE_CHECKING:
    from app_server.engine.auth.usage_limits import AccountUsage, Credits, UsageWindow

logger = logging.getLogger(__name__)


async def account_read(context: ConnectionContext, params: wire.GetAccountParams) -> wire.GetAccountResponse:
    """Return the account; none if the configured provider needs no login, even if a login is stored."""
    accounts = context.accounts
    status = await accounts.status(refresh=params.refresh_token)
    return wire.GetAccountResponse(
        account=_account(accounts, status.method), requires_openai_auth=status.requires_openai_auth
    )


async def account_rate_limits_read(
    context: ConnectionContext, params: wire.GetAccountRateLimitsParams
) -> wire.GetAccountRateLimitsResponse:
    """Return the limits of the account. If its service cannot be asked, return the limits that came with the provider's
    last response, if there are any.
    """
    accounts = context.accounts
    method = accounts.method()
    if method is not AuthMethod.CHATGPT:
        raise login_required("read rate limits", method)
    latest = context.shared.get(AccountLimits, AccountLimits).latest
    by_id: dict[str, RateLimitSnapshot] | None = None
    try:
        by_id = _limits(await accounts.usage())
    except AuthError as error:
        if latest.primary is None and latest.secondary is None:
            raise RpcError(
                INTERNAL_ERROR, f"failed to fetch codex rate limits: {error}", {"kind": "account"}
            ) from error
        logger.warning("the limits of the last turn are shown: %s", error)
    claims = accounts.identity()
    return wire.GetAccountRateLimitsResponse(
        rate_limits=next(iter(by_id.values())) if by_id else latest,
        rate_limits_by_limit_id=by_id,
        account_id=claims.account_id if claims else None,
    )


def _limits(usage: AccountUsage) -> dict[str, RateLimitSnapshot]:
    """Return the limits by their ids, those of the usual models first, in the shape for clients."""
    plan = plan_type(usage.plan) if usage.plan else None
    return {
        limit.id: RateLimitSnapshot(
            limit_id=limit.id,
            limit_name=limit.name,
            primary=_limit_window(limit.primary),
            secondary=_limit_window(limit.secondary),
            credits=_credits(usage.credits) if place == 0 else None,
            plan_type=plan,
        )
        for place, limit in enumerate(usage.limits)
    }


def _limit_window(window: UsageWindow | None) -> RateLimitWindow | None:
    if window is None:
        return None
    return RateLimitWindow(
        used_percent=window.used_percent, window_duration_mins=window.minutes, resets_at=window.resets_at
    )


def _credits(credits: Credits | None) -> Json:
    if credits is None:
        return None
    return {"hasCredits": credits.has_credits, "unlimited": credits.unlimited, "balance": credits.balance}


def _account(accounts: Accounts, method: AuthMethod | None) -> wire.Account | None:
    if method is None:
        return None
    if method is AuthMethod.API_KEY:
        return wire.ApiKeyAccount()
    claims = accounts.identity()
    return wire.ChatgptAccount(
        email=claims.email if claims else None, plan_type=plan_type(claims.plan_type if claims else None)
    )


def plan_type(word: str | None) -> PlanType:
    """Return the plan that the login names; a plan that is not known here counts as unknown."""
    try:
        return PlanType((word or "").lower())
    except ValueError:
        return PlanType.UNKNOWN


MODES: Final[Mapping[AuthMethod, wire.AuthMode]] = {
    AuthMethod.API_KEY: "apikey",
    AuthMethod.CHATGPT: "chatgpt",
}


def _completed(
    context: ConnectionContext, outcome: LoginOutcome, method: AuthMethod, login_id: str | None = None
) -> None:
    to_client(context).notify(
        wire.ACCOUNT_LOGIN_COMPLETED, login_id=login_id, success=outcome.success, error=outcome.error
    )
    if outcome.success:
        _updated(context, method)


def _await_user(context: ConnectionContext, login: OpenLogin[Flow]) -> None:
    """Wait for the user in the background."""
    context.accounts.await_in_background(
        login, lambda outcome: _completed(context, outcome, AuthMethod.CHATGPT, login.id)
    )


def _updated(context: ConnectionContext, method: AuthMethod | None) -> None:
    """Notify all clients of the user's current login."""
    claims = context.accounts.identity() if method is AuthMethod.CHATGPT else None
    to_everybody(context).notify(
        wire.ACCOUNT_UPDATED,
        auth_mode=None if method is None else MODES[method],
        plan_type=None if claims is None else plan_type(claims.plan_type),
    )


async def account_login_start(
    context: ConnectionContext, params: wire.LoginAccountParams
) -> AsyncIterator[wire.LoginAccountResponse]:
    try:
        started, go_on = await _begun(context, params)
    except AuthError as error:
        raise invalid_request(str(error), "account") from error
    yield wire.LoginAccountResponse(started)
    go_on()


async def _begun(
    context: ConnectionContext, params: wire.LoginAccountParams
) -> tuple[wire.LoginAccountStarted, Callable[[], None]]:
    """Begin a login; return the response, and the function that is called after it was sent."""
    match params.root:
        case wire.ApiKeyLoginAccountParams(api_key=key):
            context.accounts.store_api_key(key)
            done = LoginOutcome(success=True)
            return wire.ApiKeyLoginAccountResponse(), partial(_completed, context, done, AuthMethod.API_KEY)
        case wire.ChatgptLoginAccountParams():
            login = await context.accounts.open_login()
            started = wire.ChatgptLoginAccountResponse(login_id=login.id, auth_url=login.flow.auth_url)
            return started, partial(_await_user, context, login)
        case wire.ChatgptDeviceCodeLoginAccountParams():
            device = await context.accounts.open_device_login()
            return wire.ChatgptDeviceCodeLoginAccountResponse(
                login_id=device.id,
                verification_url=device.flow.verification_url,
                user_code=device.flow.user_code,
            ), partial(_await_user, context, device)


async def account_login_cancel(
    context: ConnectionContext, params: wire.CancelLoginAccountParams
) -> wire.CancelLoginAccountResponse:
    """Cancel a login. The notification `account/login/completed` is sent by the login itself."""
    try:
        UUID(params.login_id)
    except ValueError:
        raise invalid_field(f"invalid login id: {params.login_id[:100]}", "loginId") from None
    found = context.accounts.cancel(params.login_id)
    return wire.CancelLoginAccountResponse(status="canceled" if found else "notFound")


async def account_logout(context: ConnectionContext, params: NoParams) -> AsyncIterator[None]:
    await context.accounts.logout()
    yield
    _updated(context, None)


NO_SUCH_METHOD: Final = -32601
"""JSON-RPC's error code for a missing method. A client that imports takes this code, and no other, for a server without
the method.
"""

REFUSED: Final = {
    "account/usage/read": "read token usage",
    "account/workspaceMessages/read": "read workspace messages",
    "account/sendAddCreditsNudgeEmail": "notify workspace owner",
    "externalAgentConfig/import": None,
}
"""Refused methods, with their purposes: those that only the provider's own service could serve, which this server never
asks; and those that no server of this kind has.
"""


def _refusing(method: str, purpose: str | None, context: ConnectionContext) -> Route:
    async def refuse(context: ConnectionContext, params: NoParams) -> None:
        if purpose is None:
            raise RpcError(NO_SUCH_METHOD, unknown_method(method), {"kind": "unknown_method"})
        raise login_required(purpose, context.accounts.method())

    return route(ClientRequest(method, NoParams, NoResult, "Refused."), refuse, context)


def routes(context: ConnectionContext) -> tuple[Route, ...]:
    return (
        route(wire.ACCOUNT_READ, account_read, context),
        route(wire.ACCOUNT_RATE_LIMITS_READ, account_rate_limits_read, context),
        route(wire.ACCOUNT_LOGIN_START, account_login_start, context),
        route(wire.ACCOUNT_LOGIN_CANCEL, account_login_cancel, context),
        route(wire.ACCOUNT_LOGOUT, account_logout, context),
        *(_refusing(method, purpose, context) for method, purpose in REFUSED.items()),
    )
