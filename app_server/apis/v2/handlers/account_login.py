"""Logging in and out. Each way ends with `account/login/completed`; where it changed who is logged in,
`account/updated` follows.
"""

from __future__ import annotations

from typing import assert_never
from uuid import UUID

from app_server.apis.logins import Logins
from app_server.apis.result import HandlerResult
from app_server.apis.services import ConfigSource
from app_server.apis.v2.account_errors import account_error
from app_server.apis.v2.handlers.account import plan_type
from app_server.apis.v2.notify import ThreadNotifier
from app_server.core.auth.auth_manager import AuthManager
from app_server.core.auth.home_login import AuthMethod
from app_server.core.auth.login_outcome import LoginOutcome
from app_server.core.errors import AuthError
from app_server.rpc.errors import invalid_request
from protocol.records import dataclass
from protocol.table import NoParams
from protocol.v2 import notifications
from protocol.v2.account import (
    AccountLoginCompletedNotification,
    AccountUpdatedNotification,
    ApiKeyLoginAccountParams,
    ApiKeyLoginAccountResponse,
    AuthMode,
    CancelLoginAccountParams,
    CancelLoginAccountResponse,
    CancelLoginAccountStatus,
    ChatgptDeviceCodeLoginAccountParams,
    ChatgptDeviceCodeLoginAccountResponse,
    ChatgptLoginAccountParams,
    ChatgptLoginAccountResponse,
    LoginAccountParams,
    LoginAccountResponse,
    LogoutAccountResponse,
)

MODES = {AuthMethod.API_KEY: AuthMode.APIKEY, AuthMethod.CHATGPT: AuthMode.CHATGPT}


@dataclass(frozen=True, slots=True)
class LoginContext:
    config: ConfigSource
    auth: AuthManager
    logins: Logins
    notifier: ThreadNotifier

    def completed(self, outcome: LoginOutcome, method: AuthMethod, login_id: str | None = None) -> None:
        ended = AccountLoginCompletedNotification(
            login_id=login_id, success=outcome.success, error=outcome.error
        )
        self.notifier.notify(notifications.ACCOUNT_LOGIN_COMPLETED, ended)
        if outcome.success:
            self.updated(method)

    def updated(self, method: AuthMethod | None) -> None:
        """Sends how the user is logged in now."""
        claims = self.auth.identity() if method is AuthMethod.CHATGPT else None
        changed = AccountUpdatedNotification(
            auth_mode=None if method is None else MODES[method],
            plan_type=None if claims is None else plan_type(claims.plan_type),
        )
        self.notifier.notify(notifications.ACCOUNT_UPDATED, changed)


async def account_login_start(
    context: LoginContext, params: LoginAccountParams
) -> HandlerResult[LoginAccountResponse]:
    context.auth.follow(context.config.load().login)
    try:
        match params.root:
            case ApiKeyLoginAccountParams(api_key=key):
                return _store_key(context, key)
            case ChatgptLoginAccountParams():
                return await _open_browser_login(context)
            case ChatgptDeviceCodeLoginAccountParams():
                return await _open_device_login(context)
            case _:
                assert_never(params.root)
    except AuthError as error:
        raise account_error(str(error)) from error


async def account_login_cancel(
    context: LoginContext, params: CancelLoginAccountParams
) -> CancelLoginAccountResponse:
    """`account/login/completed` follows from the login itself."""
    try:
        UUID(params.login_id)
    except ValueError:
        message = f"invalid login id: {params.login_id[:100]}"
        raise invalid_request(message, "invalid_params", "loginId") from None
    found = context.logins.cancel(params.login_id)
    return CancelLoginAccountResponse(
        status=CancelLoginAccountStatus.CANCELED if found else CancelLoginAccountStatus.NOT_FOUND
    )


async def account_logout(context: LoginContext, params: NoParams) -> HandlerResult[LogoutAccountResponse]:
    await context.auth.logout()

    async def notify() -> None:
        context.updated(None)

    return HandlerResult(LogoutAccountResponse(), notify)


def _store_key(context: LoginContext, key: str) -> HandlerResult[LoginAccountResponse]:
    context.auth.login_with_api_key(key)

    async def notify() -> None:
        context.completed(LoginOutcome(success=True), AuthMethod.API_KEY)

    return HandlerResult(LoginAccountResponse(ApiKeyLoginAccountResponse()), notify)


async def _open_browser_login(context: LoginContext) -> HandlerResult[LoginAccountResponse]:
    login = await context.logins.open()

    def ended(outcome: LoginOutcome) -> None:
        context.completed(outcome, AuthMethod.CHATGPT, login.id)

    async def wait_for_browser() -> None:
        context.logins.await_in_background(login, ended)

    started = ChatgptLoginAccountResponse(login_id=login.id, auth_url=login.flow.auth_url)
    return HandlerResult(LoginAccountResponse(started), wait_for_browser)


async def _open_device_login(context: LoginContext) -> HandlerResult[LoginAccountResponse]:
    login = await context.logins.open_device()

    def ended(outcome: LoginOutcome) -> None:
        context.completed(outcome, AuthMethod.CHATGPT, login.id)

    async def wait_for_user() -> None:
        context.logins.await_in_background(login, ended)

    started = ChatgptDeviceCodeLoginAccountResponse(
        login_id=login.id, verification_url=login.flow.verification_url, user_code=login.flow.user_code
    )
    return HandlerResult(LoginAccountResponse(started), wait_for_user)
