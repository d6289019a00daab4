"""Secrets in messages, replaced before anything is shown or saved: found by names of fields, and by how keys look.

Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from protocol.base import Json

MASK = "********"

_NAMES = re.compile(
    r"(api_?key|access_?token|refresh_?token|id_?token|auth_?token|bearer_?token|^token$|secret|passw(or)?d|"
    r"^authorization$|credential|cookie|private_?key|(^|_)(key|token|password)$)",
    re.IGNORECASE,
)
"""Of fields, with words joined by underscores, whose text is a secret."""

_HARMLESS = re.compile(
    r"(progress_?token|token_?(usage|count|limit|endpoint|url|type)|env_?(key|var)|_name$|_url$)",
    re.IGNORECASE,
)

_VALUES = re.compile(
    r"\b(?:sk|pk|rk)-[A-Za-z0-9_-]{16,}"
    r"|\bgh[pousr]_[A-Za-z0-9]{20,}|\bgithub_pat_[A-Za-z0-9_]{20,}"
    r"|\bxox[abprs]-[A-Za-z0-9-]{10,}|\bAKIA[A-Z0-9]{16}\b|\bAIza[A-Za-z0-9_-]{30,}"
    r"|\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)"
)
"""Keys of well-known makers, signed tokens, private keys."""

_BEARER = re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9+/._~=-]{8,}")
_ASSIGNED = re.compile(
    r"(?i)\b([a-z0-9_]*(?:api_?key|token|secret|password|passwd))(\s*[=:]\s*)(\"[^\"\s]+\"|'[^'\s]+'|[^\s\"',;&]{6,})"
)
"""`NAME_API_KEY=value` in a text."""

_MARKERS = (
    *(
        "sk-",
        "pk-",
        "rk-",
        "ghp_",
        "gho_",
        "ghu_",
        "ghs_",
        "ghr_",
        "github_pat_",
        "xox",
        "AKIA",
        "AIza",
        "eyJ",
    ),
    "PRIVATE KEY",
)
"""One of them is in every text that has one of the values above."""
_ASSIGNABLE = ("key", "token", "secret", "passw")
_SCHEMES = ("bearer", "basic")
_WORDS = (*_ASSIGNABLE, *_SCHEMES, "authorization", "credential", "cookie")
"""In lower case; one of them is in every name of a secret, and in every text that gives one a value."""
SHORTEST = 8
"""Characters of a text with a secret in it."""
LONGEST_NAME = 64
_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def is_suspicious(text: str) -> bool:
    """Whether a text is worth being looked at more closely; quick."""
    return _has(text, _MARKERS) or _has(text.lower(), _WORDS)


def _has(text: str, words: Iterable[str]) -> bool:
    for word in words:  # noqa: SIM110  this is asked for every message, and a generator takes three times as long
        if word in text:
            return True
    return False


def masked_text(text: str) -> str:
    if len(text) < SHORTEST:
        return text
    if _has(text, _MARKERS):
        text = _VALUES.sub(MASK, text)
    lower = text.lower()
    if _has(lower, _SCHEMES):
        text = _BEARER.sub(lambda found: f"{found[1]} {MASK}", text)
    if ("=" in text or ":" in text) and _has(lower, _ASSIGNABLE):
        text = _ASSIGNED.sub(lambda found: f"{found[1]}{found[2]}{MASK}", text)
    return text


def masked(value: Json, name: str = "") -> Json:
    """The value with its secrets replaced; the same object where there are none."""
    if isinstance(value, str):
        return MASK if value and is_secret_name(name) else masked_text(value)
    if isinstance(value, dict):
        made = {key: masked(inner, key) for key, inner in value.items()}
        return made if any(made[key] is not inner for key, inner in value.items()) else value
    if isinstance(value, list):
        items = [masked(inner, name) for inner in value]
        return items if any(a is not b for a, b in zip(items, value, strict=True)) else value
    return value


def is_secret_name(name: str) -> bool:
    return _is_secret(name) if len(name) <= LONGEST_NAME else _is_secret.__wrapped__(name)


@lru_cache(maxsize=4096)
def _is_secret(name: str) -> bool:
    words = _WORD.sub("_", name).replace("-", "_")
    return _NAMES.search(words) is not None and _HARMLESS.search(words) is None
