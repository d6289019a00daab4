"""What belongs to no conversation: the handshake, login and logout, the account, the user's saved settings."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from app_server.apis.handshake import Handshake
from app_server.apis.router import HandlerResult
from app_server.core.auth.accounts import Accounts
from app_server.core.auth.home_login import AuthMethod, LoginOutcome
from app_server.core.config.settings import UserSettings
from app_server.identity import platform_os
from app_server.rpc.errors import not_found
from app_server.rpc.outgoing import Outgoing
from protocol.reading import read
from protocol.table import NoParams
from protocol.v1 import setup as wire
from protocol.v1.methods import AUTH_STATUS_CHANGE, LOGIN_CHAT_GPT_COMPLETE


class AccountContext(Struct, frozen=True):
    accounts: Accounts
    outgoing: Outgoing

    def notify_status(self, method: AuthMethod | None) -> None:
        changed = wire.AuthStatusChangeNotification(auth_method=_mode(method))
        self.outgoing.notify(AUTH_STATUS_CHANGE.method, changed.to_json())


async def login_api_key(
    context: AccountContext, params: wire.LoginApiKeyParams
) -> HandlerResult[wire.LoginApiKeyResponse]:
    context.accounts.store_api_key(params.api_key)

    async def notify() -> None:
        context.notify_status(AuthMethod.API_KEY)

    return HandlerResult(wire.LoginApiKeyResponse(), notify)


async def login_chat_gpt(
    context: AccountContext, params: NoParams
) -> HandlerResult[wire.LoginChatGptResponse]:
    login = await context.accounts.open_login()

    def ended(outcome: LoginOutcome) -> None:
        done = wire.LoginChatGptCompleteNotification(
            login_id=login.id, success=outcome.success, error=outcome.error
        )
        context.outgoing.notify(LOGIN_CHAT_GPT_COMPLETE.method, done.to_json())
        if outcome.success:
            context.notify_status(AuthMethod.CHATGPT)

    async def wait_for_browser() -> None:
        context.accounts.await_in_background(login, ended)

    return HandlerResult(
        wire.LoginChatGptResponse(login_id=login.id, auth_url=login.flow.auth_url), wait_for_browser
    )


async def cancel_login_chat_gpt(
    context: AccountContext, params: wire.CancelLoginChatGptParams
) -> wire.CancelLoginChatGptResponse:
    if not context.accounts.cancel(params.login_id):
        raise not_found("login id", params.login_id)
    return wire.CancelLoginChatGptResponse()


async def logout_chat_gpt(
    context: AccountContext, params: NoParams
) -> HandlerResult[wire.LogoutChatGptResponse]:
    await context.accounts.logout()

    async def notify() -> None:
        context.notify_status(None)

    return HandlerResult(wire.LogoutChatGptResponse(), notify)


async def get_auth_status(
    context: AccountContext, params: wire.GetAuthStatusParams
) -> wire.GetAuthStatusResponse:
    status = await context.accounts.status(
        include_token=bool(params.include_token), refresh=bool(params.refresh_token)
    )
    return wire.GetAuthStatusResponse(
        auth_method=_mode(status.method),
        auth_token=status.token,
        requires_openai_auth=status.requires_openai_auth,
    )


async def user_info(context: AccountContext, params: NoParams) -> wire.UserInfoResponse:
    claims = context.accounts.identity()
    return wire.UserInfoResponse(alleged_user_email=claims.email if claims else None)


def _mode(method: AuthMethod | None) -> wire.AuthMode | None:
    return wire.AuthMode(method.value) if method else None


class InitializeContext(Struct, frozen=True):
    handshake: Handshake
    home: Path


async def initialize(context: InitializeContext, params: wire.InitializeParams) -> wire.InitializeResponse:
    announced = params.capabilities
    raw = (
        None if announced is None else {**(announced.model_extra or {}), "elicitation": announced.elicitation}
    )
    context.handshake.accept_capabilities(params.client_info.name, params.client_info.version, raw)
    user_agent = context.handshake.user_agent.text()
    if announced is None:
        return wire.InitializeResponse(user_agent=user_agent)
    return wire.WideInitializeResponse(
        user_agent=user_agent,
        codex_home=str(context.home),
        platform_family="unix",
        platform_os=platform_os(),
    )


async def get_user_agent(context: InitializeContext, params: NoParams) -> wire.GetUserAgentResponse:
    return wire.GetUserAgentResponse(user_agent=context.handshake.user_agent.text())


async def get_user_saved_config(config: UserSettings, params: NoParams) -> wire.GetUserSavedConfigResponse:
    return wire.GetUserSavedConfigResponse(config=read(wire.UserSavedConfig, config.file.saved()))


async def set_default_model(
    config: UserSettings, params: wire.SetDefaultModelParams
) -> wire.SetDefaultModelResponse:
    await config.file.set_default_model(params.model, params.reasoning_effort)
    return wire.SetDefaultModelResponse()
