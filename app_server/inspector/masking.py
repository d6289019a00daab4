"""Secrets in messages, replaced before anything is shown or saved: found by names of fields, and by how keys look.

Pure.
"""

from __future__ import annotations

import re

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

_SUSPICIOUS = re.compile(
    r"(?i)key|token|secret|passw|authorization|credential|cookie|bearer|basic|\bsk-|gh[pousr]_|xox|akia|aiza|eyj"
)
_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def is_suspicious(text: str) -> bool:
    """Whether a text is worth being looked at more closely; quick."""
    return _SUSPICIOUS.search(text) is not None


def masked_text(text: str) -> str:
    if not is_suspicious(text):
        return text
    text = _VALUES.sub(MASK, text)
    text = _BEARER.sub(lambda found: f"{found[1]} {MASK}", text)
    return _ASSIGNED.sub(lambda found: f"{found[1]}{found[2]}{MASK}", text)


def masked(value: Json, name: str = "") -> Json:
    """The value with its secrets replaced; the same object where there are none."""
    match value:
        case str():
            return MASK if value and is_secret_name(name) else masked_text(value)
        case dict():
            made = {key: masked(inner, key) for key, inner in value.items()}
            return made if any(made[key] is not inner for key, inner in value.items()) else value
        case list():
            items = [masked(inner, name) for inner in value]
            return items if any(a is not b for a, b in zip(items, value, strict=True)) else value
        case _:
            return value


def is_secret_name(name: str) -> bool:
    words = _WORD.sub("_", name).replace("-", "_")
    return _NAMES.search(words) is not None and _HARMLESS.search(words) is None
