"""Logging in and out, and who is logged in."""

from __future__ import annotations

from app_server.core.auth.login import LoginFlow, open_login
from app_server.core.auth.manager import AuthMethod, LoginRules
from app_server.handlers.context import HandlerContext
from app_server.handlers.then import Answer
from app_server.rpc.errors import not_found
from protocol.methods import AUTH_STATUS_CHANGE, LOGIN_CHAT_GPT_COMPLETE, NoParams
from protocol.v1.account import (
    AuthMode,
    AuthStatusChangeNotification,
    CancelLoginChatGptParams,
    CancelLoginChatGptResponse,
    GetAuthStatusParams,
    GetAuthStatusResponse,
    LoginApiKeyParams,
    LoginApiKeyResponse,
    LoginChatGptCompleteNotification,
    LoginChatGptResponse,
    LogoutChatGptResponse,
)


async def login_api_key(context: HandlerContext, params: LoginApiKeyParams) -> Answer:
    _apply_rules(context)
    context.auth.login_with_api_key(params.api_key)

    async def then() -> None:
        _tell_status(context, AuthMethod.API_KEY)

    return Answer(LoginApiKeyResponse(), then)


async def login_chat_gpt(context: HandlerContext, params: NoParams) -> Answer:
    """One login at a time: a new one ends the one before."""
    _apply_rules(context)
    for flow in list(context.logins.values()):
        flow.cancel()
    flow = await open_login(context.auth, random=context.random, originator=context.user_agent.originator)
    login_id = context.new_id()
    context.logins[login_id] = flow

    async def then() -> None:
        context.background.start_soon(_finish, context, login_id, flow, name="login")

    return Answer(LoginChatGptResponse(login_id=login_id, auth_url=flow.auth_url), then)


async def cancel_login_chat_gpt(
    context: HandlerContext, params: CancelLoginChatGptParams
) -> CancelLoginChatGptResponse:
    flow = context.logins.get(params.login_id)
    if flow is None:
        raise not_found("login id", params.login_id)
    flow.cancel()
    return CancelLoginChatGptResponse()


async def logout_chat_gpt(context: HandlerContext, params: NoParams) -> Answer:
    await context.auth.logout()

    async def then() -> None:
        _tell_status(context, None)

    return Answer(LogoutChatGptResponse(), then)


async def get_auth_status(context: HandlerContext, params: GetAuthStatusParams) -> GetAuthStatusResponse:
    provider = context.config().provider
    status = await context.auth.status(
        requires_openai_auth=provider.requires_openai_auth,
        include_token=bool(params.include_token),
        refresh=bool(params.refresh_token),
    )
    return GetAuthStatusResponse(
        auth_method=_mode(status.method),
        auth_token=status.token,
        requires_openai_auth=status.requires_openai_auth,
    )


async def _finish(context: HandlerContext, login_id: str, flow: LoginFlow) -> None:
    try:
        outcome = await flow.run()
    finally:
        context.logins.pop(login_id, None)
    done = LoginChatGptCompleteNotification(login_id=login_id, success=outcome.success, error=outcome.error)
    context.outgoing.notify(LOGIN_CHAT_GPT_COMPLETE.method, done.to_json())
    if outcome.success:
        _tell_status(context, AuthMethod.CHATGPT)


def _apply_rules(context: HandlerContext) -> None:
    config = context.config()
    context.auth.rules = LoginRules(config.forced_login_method, config.forced_chatgpt_workspace_id)


def _tell_status(context: HandlerContext, method: AuthMethod | None) -> None:
    changed = AuthStatusChangeNotification(auth_method=_mode(method))
    context.outgoing.notify(AUTH_STATUS_CHANGE.method, changed.to_json())


def _mode(method: AuthMethod | None) -> AuthMode | None:
    return AuthMode(method.value) if method else None
