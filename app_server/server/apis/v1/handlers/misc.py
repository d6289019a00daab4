"""Handlers of methods that belong to no conversation: the handshake, login and logout, the account, the user's saved
settings; searches, diffs, and commands in the requested sandbox.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

from app_server.engine.auth.credentials import AuthMethod, LoginOutcome
from app_server.engine.client_services import WantedCommand
from app_server.engine.support.client_info import platform_os
from app_server.engine.support.engine_errors import LaunchError
from app_server.server.apis.contexts import ConnectionContext
from app_server.server.apis.router import Route, route
from app_server_protocol.method_table import NoParams
from app_server_protocol.outgoing import struct_from
from app_server_protocol.parse import read
from app_server_protocol.rpc_errors import internal_error, invalid_field, invalid_request, not_found
from app_server_protocol.v1 import setup as wire


def _notify_status(context: ConnectionContext, method: AuthMethod | None) -> None:
    context.notify(wire.AUTH_STATUS_CHANGE, auth_method=_mode(method))


async def login_api_key(context: ConnectionContext, params: wire.LoginApiKeyParams) -> AsyncIterator[None]:
    context.accounts.store_api_key(params.api_key)
    yield
    _notify_status(context, AuthMethod.API_KEY)


async def login_chat_gpt(
    context: ConnectionContext, params: NoParams
) -> AsyncIterator[wire.LoginChatGptResponse]:
    login = await context.accounts.open_login()

    def ended(outcome: LoginOutcome) -> None:
        context.notify(
            wire.LOGIN_CHAT_GPT_COMPLETE, login_id=login.id, success=outcome.success, error=outcome.error
        )
        if outcome.success:
            _notify_status(context, AuthMethod.CHATGPT)

    yield wire.LoginChatGptResponse(login_id=login.id, auth_url=login.flow.auth_url)
    context.accounts.await_in_background(login, ended)


async def cancel_login_chat_gpt(context: ConnectionContext, params: wire.CancelLoginChatGptParams) -> None:
    if not context.accounts.cancel(params.login_id):
        raise not_found("login id", params.login_id)


async def logout_chat_gpt(context: ConnectionContext, params: NoParams) -> AsyncIterator[None]:
    await context.accounts.logout()
    yield
    _notify_status(context, None)


async def get_auth_status(
    context: ConnectionContext, params: wire.GetAuthStatusParams
) -> wire.GetAuthStatusResponse:
    status = await context.accounts.status(
        include_token=bool(params.include_token), refresh=bool(params.refresh_token)
    )
    return wire.GetAuthStatusResponse(
        auth_method=_mode(status.method),
        auth_token=status.token,
        requires_openai_auth=status.requires_openai_auth,
    )


async def user_info(context: ConnectionContext, params: NoParams) -> wire.UserInfoResponse:
    claims = context.accounts.identity()
    return wire.UserInfoResponse(alleged_user_email=claims.email if claims else None)


def _mode(method: AuthMethod | None) -> wire.AuthMode | None:
    return wire.AuthMode(method.value) if method else None


async def initialize(context: ConnectionContext, params: wire.InitializeParams) -> wire.InitializeResponse:
    announced = params.capabilities
    raw = (
        None if announced is None else {**(announced.model_extra or {}), "elicitation": announced.elicitation}
    )
    context.handshake.accept(params.client_info.name, params.client_info.version, raw)
    user_agent = context.handshake.user_agent.text()
    if announced is None:
        return wire.InitializeResponse(user_agent=user_agent)
    return wire.WideInitializeResponse(
        user_agent=user_agent,
        codex_home=str(context.config.home),
        platform_family="unix",
        platform_os=platform_os(),
    )


async def get_user_agent(context: ConnectionContext, params: NoParams) -> wire.GetUserAgentResponse:
    return wire.GetUserAgentResponse(user_agent=context.handshake.user_agent.text())


async def get_user_saved_config(
    context: ConnectionContext, params: NoParams
) -> wire.GetUserSavedConfigResponse:
    return wire.GetUserSavedConfigResponse(config=read(wire.UserSavedConfig, context.config.file.saved()))


async def set_default_model(context: ConnectionContext, params: wire.SetDefaultModelParams) -> None:
    await context.config.file.set_default_model(params.model, params.reasoning_effort)


async def fuzzy_file_search(
    context: ConnectionContext, params: wire.FuzzyFileSearchParams
) -> wire.FuzzyFileSearchResponse:
    """Search for files; a second search with the same token cancels the first, which then returns no files."""
    roots = [Path(root) for root in params.roots]
    hits = await context.host.search.get().search(params.query, roots, params.cancellation_token)
    return wire.FuzzyFileSearchResponse(
        files=tuple(struct_from(wire.FuzzyFileSearchResult, hit) for hit in hits)
    )


async def git_diff_to_remote(
    context: ConnectionContext, params: wire.GitDiffToRemoteParams
) -> wire.GitDiffToRemoteResponse:
    found = await context.host.diff_to_remote(Path(params.cwd))
    if found is None:
        raise invalid_request(f'failed to compute git diff to remote for cwd: "{params.cwd}"', "git_diff")
    return wire.GitDiffToRemoteResponse(sha=wire.GitSha(found.sha), diff=found.diff)


DEFAULT_TIMEOUT_MS = 10_000


async def exec_one_off_command(
    context: ConnectionContext, params: wire.ExecOneOffCommandParams
) -> wire.ExecOneOffCommandResponse:
    """Run a command, under the configured policy by default. After a time-out the exit code is 124."""
    if not params.command:
        raise invalid_field("command must not be empty", "command")
    wanted = WantedCommand(
        argv=params.command,
        cwd=params.cwd,
        policy=params.sandbox_policy,
        timeout_ms=DEFAULT_TIMEOUT_MS if params.timeout_ms is None else params.timeout_ms,
    )
    try:
        result = await context.host.run(wanted)
    except LaunchError as error:
        raise internal_error(f"exec failed: {error}", "exec") from error
    return wire.ExecOneOffCommandResponse(
        exit_code=result.exit_code,
        stdout=result.stdout.decode("utf-8", "replace"),
        stderr=result.stderr.decode("utf-8", "replace"),
    )


def routes(context: ConnectionContext) -> tuple[Route, ...]:
    return (
        route(wire.INITIALIZE, initialize, context),
        route(wire.GET_USER_AGENT, get_user_agent, context),
        route(wire.USER_INFO, user_info, context),
        route(wire.GIT_DIFF_TO_REMOTE, git_diff_to_remote, context),
        route(wire.FUZZY_FILE_SEARCH, fuzzy_file_search, context),
        route(wire.EXEC_ONE_OFF_COMMAND, exec_one_off_command, context),
        route(wire.LOGIN_API_KEY, login_api_key, context),
        route(wire.LOGIN_CHAT_GPT, login_chat_gpt, context),
        route(wire.CANCEL_LOGIN_CHAT_GPT, cancel_login_chat_gpt, context),
        route(wire.LOGOUT_CHAT_GPT, logout_chat_gpt, context),
        route(wire.GET_AUTH_STATUS, get_auth_status, context),
        route(wire.GET_USER_SAVED_CONFIG, get_user_saved_config, context),
        route(wire.SET_DEFAULT_MODEL, set_default_model, context),
    )
