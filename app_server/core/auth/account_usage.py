"""How much of a ChatGPT account is used up, as the account's own service says: asked for when a client asks.

The service has a limit for the usual models and one for each group of models that is counted apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from msgspec import Struct

from app_server.core.auth.auth_manager import AuthManager
from app_server.core.auth.credentials import AuthMethod, Credentials
from app_server.core.auth.oauth_http import OAuthAnswer, OAuthHttp
from app_server.core.errors import AuthError
from app_server_protocol.structs import Json

CHATGPT_URL: Final = "https://chatgpt.com/backend-api"
USUAL: Final = "codex"
"""The id of the limit of the usual models."""

MOST_LIMITS: Final = 64
UNAUTHORIZED: Final = 401
WHOM: Final = "the service of ChatGPT accounts"


class UsageWindow(Struct, frozen=True):
    """Share of a span of time that is used up."""

    used_percent: int
    minutes: int | None
    resets_at: int | None
    """In seconds since 1970."""


class Credits(Struct, frozen=True):
    has_credits: bool
    unlimited: bool
    balance: str | None


class Limit(Struct, frozen=True):
    """One limit of an account, with its windows."""

    id: str
    name: str | None
    primary: UsageWindow | None
    secondary: UsageWindow | None


class AccountUsage(Struct, frozen=True):
    """The limits of an account, that of the usual models first."""

    plan: str | None
    limits: tuple[Limit, ...]
    credits: Credits | None = None


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


def read_usage(body: Mapping[str, Json]) -> AccountUsage | None:
    """Return what the service said; None if there is no limit in it."""
    if not isinstance(body.get("rate_limit"), dict):
        return None
    plan = body.get("plan_type")
    return AccountUsage(
        plan=plan if isinstance(plan, str) else None,
        limits=(_limit(USUAL, None, body["rate_limit"]), *_other_limits(body.get("additional_rate_limits"))),
        credits=_credits(body.get("credits")),
    )


def _other_limits(entries: Json) -> Iterator[Limit]:
    for entry in entries[:MOST_LIMITS] if isinstance(entries, list) else ():
        match entry:
            case {"metered_feature": str(id), "rate_limit": dict(limit)}:
                name = entry.get("limit_name")
                yield _limit(id[:200], name[:200] if isinstance(name, str) else None, limit)
            case _:
                pass


def _limit(id: str, name: str | None, limit: Mapping[str, Json]) -> Limit:
    return Limit(id, name, _window(limit.get("primary_window")), _window(limit.get("secondary_window")))


def _window(window: Json) -> UsageWindow | None:
    match window:
        case {"used_percent": int(used) | float(used)} if used is not True and 0 <= used <= 1_000_000:
            seconds, resets_at = window.get("limit_window_seconds"), window.get("reset_at")
            minutes = -(-seconds // 60) if _is_positive(seconds) else None
            return UsageWindow(round(used), minutes, resets_at if _is_positive(resets_at) else None)
        case _:
            return None


def _credits(entry: Json) -> Credits | None:
    match entry:
        case {"has_credits": bool(has), "unlimited": bool(unlimited)}:
            balance = entry.get("balance")
            return Credits(has, unlimited, balance[:200] if isinstance(balance, str) else None)
        case _:
            return None


def _is_positive(value: Json) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**53
