"""Reads the claims of the tokens of a ChatGPT login.

It does not verify signatures: the tokens come over TLS from the issuer or from the user's own file, and no claim grants
any right. Pure; a token that is not a JWT has no claims.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from protocol.records import dataclass

if TYPE_CHECKING:
    from protocol.base import Json

AUTH_CLAIM = "https://api.openai.com/auth"
PROFILE_CLAIM = "https://api.openai.com/profile"

MAX_TOKEN_CHARS = 64 * 1024
"""Real tokens have two or three thousand characters."""


@dataclass(frozen=True, slots=True)
class IdClaims:
    """The claims of an id token that this server uses."""

    email: str | None = None
    plan_type: str | None = None
    account_id: str | None = None


def read_id_token(token: str) -> IdClaims:
    claims = jwt_claims(token)
    auth = _mapping(claims.get(AUTH_CLAIM))
    profile = _mapping(claims.get(PROFILE_CLAIM))
    return IdClaims(
        email=_text(claims.get("email")) or _text(profile.get("email")),
        plan_type=_text(auth.get("chatgpt_plan_type")),
        account_id=_text(auth.get("chatgpt_account_id")),
    )


def expires_at(token: str) -> float | None:
    """The expiry time of a token in seconds since the epoch; None if it has none."""
    expiry = jwt_claims(token).get("exp")
    if isinstance(expiry, bool) or not isinstance(expiry, int | float):
        return None
    return float(expiry) if abs(expiry) < 1e12 else None


def jwt_claims(token: str) -> Mapping[str, Json]:
    parts = token.split(".")
    if len(parts) != 3 or len(token) > MAX_TOKEN_CHARS:
        return {}
    payload = parts[1]
    try:
        data = base64.b64decode(payload + "=" * (-len(payload) % 4), altchars=b"-_", validate=True)
        return _mapping(json.loads(data))
    except (binascii.Error, ValueError, RecursionError):
        return {}


def _mapping(value: Json) -> Mapping[str, Json]:
    return value if isinstance(value, dict) else {}


def _text(value: Json) -> str | None:
    return value if isinstance(value, str) and value else None
