"""Requests the usage of a ChatGPT account from its service, with the login of the account."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from app_server.engine.auth.auth_manager import AuthManager
from app_server.engine.auth.credentials import AuthMethod, Credentials
from app_server.engine.auth.oauth_http import OAuthAnswer, OAuthHttp
from app_server.engine.auth.usage_limits import AccountUsage, read_usage
from app_server.engine.support.engine_errors import AuthError

CHATGPT_URL: Final = "https://chatgpt.com/backend-api"
UNAUTHORIZED: Final = 401
WHOM: Final = "the service of ChatGPT accounts"


async def ask_usage(auth: AuthManager, env: Mapping[str, str]) -> AccountUsage:
    """Return the usage of the account of a ChatGPT login. Raises AuthError."""
    login = await auth.credentials()
    answer = await _ask(auth, env, login)
    if answer.status == UNAUTHORIZED and (renewed := await auth.refresh(login)) is not None:
        answer = await _ask(auth, env, renewed)
    if not answer.is_success:
        raise AuthError(f"{WHOM} does not say how much is used up: {answer.outcome}")
    usage = read_usage(answer.fields)
    if usage is None:
        raise AuthError(f"{WHOM} does not say how much is used up: its answer has no `rate_limit`")
    return usage


async def _ask(auth: AuthManager, env: Mapping[str, str], login: Credentials | None) -> OAuthAnswer:
    if login is None or login.method is not AuthMethod.CHATGPT:
        raise AuthError("nobody is logged in with ChatGPT")
    base = (auth.settings.chatgpt_url or CHATGPT_URL).rstrip("/")
    headers = {"Authorization": f"Bearer {login.bearer}"}
    if login.account_id:
        headers["ChatGPT-Account-Id"] = login.account_id
    return await OAuthHttp(env).get(f"{base}/wham/usage", headers=headers, whom=WHOM)
