"""Replaces secrets before a message, a setting or a text is shown or saved: the only module that detects them.

They are found by names of fields, by names beside values, by the syntax in which a text gives a name a value, by users
in addresses, and by the formats of keys. Pure. Standard library only: the engine and the front ends use it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

MASK = "********"
"""Text that replaces a secret."""

_NAMES = re.compile(
    r"api_?key|access_?key|private_?key|token$|secret|passw(or)?d|pass_?(phrase|code)|bearer|authorization$|"
    r"credential|cookie|(^|_)(key|pass|auth|sig)$|_pwd$",
    re.IGNORECASE,
)
"""Names of fields whose text is a secret, with words joined by underscores."""

_HARMLESS = re.compile(
    r"progress_?token|token_?(usage|count|limit|endpoint|url|type)|env_?(key|var)|credentials?_?store|"
    r"(public|primary|foreign|sort|cache)_?key$|_(name|url|path|file|env)$",
    re.IGNORECASE,
)

_VALUES = re.compile(
    r"\b(?:sk|pk|rk)-[A-Za-z0-9_-]{16,}"
    r"|\bgh[pousr]_[A-Za-z0-9]{20,}|\bgithub_pat_[A-Za-z0-9_]{20,}"
    r"|\bxox[abprs]-[A-Za-z0-9-]{10,}|\bAKIA[A-Z0-9]{16}\b|\bAIza[A-Za-z0-9_-]{30,}"
    r"|\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)"
)
"""Formats of secrets: keys of well-known makers, signed tokens, private keys."""

_BEARER = re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9+/._~=-]{8,}")

_USER = re.compile(
    r"(?i)((?<![a-z0-9])https?://|://(?=[^/?#\s\"'<>@]{0,1000}:))[^/?#\s\"'<>]{1,1200}@",
)
"""User and password in an address; in a web address also a user alone, which may be a token."""

_QUERY = re.compile(r"(?<=[?&])([^=&?#\s\"'<>]{1,120}+=)[^&#\s\"'<>]+")

_GIVEN = re.compile(
    r"(?<![\w.-])(?:(?P<flag>--?[A-Za-z][\w-]{0,60}+)(?:=|\s{1,9})(?!-)"
    r"|(?P<name>[A-Za-z_][\w.-]{0,120}+)(?P<quote>\\{0,7}[\"']?)\s{0,9}(?P<sign>=>|:=|=|:)\s{0,9})"
)
"""Syntax by which a text gives a name a value: `NAME=`, `"name": `, `--name `."""

_GIVEN_VALUE = re.compile(
    r"(?P<escaped>\\{1,7}[\"'])(?P<a>.{0,9999}?)(?:(?P=escaped)|$)"
    r"|(?P<mark>[\"'])(?P<b>(?:(?!(?P=mark))[^\\]|\\.)*+)"
    r"|(?P<c>[^\s\"'=:;&|<>(){}\[\]\\,][^\s\"';&|<>\\]*)",
    re.DOTALL,
)
_LINE = re.compile(r"(?P<c>[^\r\n\"'\\]+)")
_HEADERS = ("authorization", "proxy-authorization", "cookie", "set-cookie")
"""Headers whose values contain spaces."""

_MARKERS = (
    *("sk-", "pk-", "rk-", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
    *("xox", "AKIA", "AIza", "eyJ", "PRIVATE KEY"),
)
"""Substrings of which every text with one of the values above contains at least one."""
_SCHEMES = ("bearer", "basic")
_WORDS = ("key", "token", "secret", "pass", "auth", "sig", "credential", "cookie", "pwd", *_SCHEMES)
"""Lower-case substrings of which every name of a secret contains one, and so does every text that gives it a value."""

LABELS = ("name", "key", "keyPath", "key_path", "header", "variable", "id")
BESIDE = ("value", "values", "default")
"""Fields whose text is a secret if a label beside them names one."""

SHORTEST = 8
"""Minimum length of a text with a secret in it, in characters."""
SHORTEST_VALUE = 6
"""Minimum length of a secret after a colon without quotes, in characters: shorter words are prose."""
LONGEST_NAME = 64
_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def is_suspicious(line: str) -> bool:
    """Return whether a text, or the JSON text of a value, may contain a secret; a quick check before the exact one."""
    return "@" in line or "\\u" in line or _has(line, _MARKERS) or _has(line.lower(), _WORDS)


def _has(text: str, words: Iterable[str]) -> bool:
    for word in words:  # noqa: SIM110  this is asked for every message, and a generator takes three times as long
        if word in text:
            return True
    return False


def masked_text(text: str) -> str:
    """Return the text with its secrets replaced; the same object if there are none."""
    if len(text) < SHORTEST:
        return text
    shown = text
    if _has(text, _MARKERS):
        shown = _VALUES.sub(MASK, shown)
    lower = text.lower()
    if _has(lower, _SCHEMES):
        shown = _BEARER.sub(rf"\1 {MASK}", shown)
    if "@" in text:
        shown = _USER.sub(rf"\1{MASK}@", shown)
    if _has(lower, _WORDS):
        shown = _without_given(_QUERY.sub(_masked_query, shown))
    return text if shown == text else shown


def _masked_query(found: re.Match[str]) -> str:
    return f"{found[1]}{MASK}" if _has(found[1].lower(), _WORDS) else found[0]


def _without_given(text: str) -> str:
    pieces: list[str] = []
    done = 0
    for given in _GIVEN.finditer(text):
        name = given["flag"] or given["name"]
        plain = not given["quote"]
        if given.start() < done or not is_secret_name(name) or (plain and name.lower() == "key"):
            continue
        is_header = plain and given["sign"] == ":" and name.lower() in _HEADERS
        value = (is_header and _LINE.match(text, given.end())) or _GIVEN_VALUE.match(text, given.end())
        if not value or (value["c"] and not is_header and _is_no_secret(given, value["c"])):
            continue
        start, end = value.span(value.lastgroup or 0)
        if start < end:
            pieces += (text[done:start], MASK)
            done = end
    return "".join((*pieces, text[done:])) if pieces else text


def _is_no_secret(given: re.Match[str], value: str) -> bool:
    """Return whether a value without quotes is a word of prose after a colon, or a number or the like in JSON."""
    return bool(given["quote"]) or (given["sign"] == ":" and len(value) < SHORTEST_VALUE)


def masked(value: Any, name: str = "") -> Any:
    """Return the JSON value with its secrets replaced; the same object if there are none.

    `name` is that of the field which contains it.
    """
    if isinstance(value, str):
        return MASK if value and is_secret_name(name) else masked_text(value)
    if isinstance(value, dict):
        named = name
        labels = LABELS if any(key in value for key in BESIDE) else ()
        for label in labels:
            if isinstance(value.get(label), str) and is_secret_name(value[label]):
                named = value[label]
        made = {
            key: masked(inner, named if key in BESIDE else "" if key in labels else key)
            for key, inner in value.items()
        }
        return made if any(made[key] is not inner for key, inner in value.items()) else value
    if isinstance(value, list):
        items = [_masked_entry(value, n, name) for n in range(len(value))]
        return items if any(a is not b for a, b in zip(items, value, strict=True)) else value
    return value


def _masked_entry(entries: Sequence[Any], n: int, name: str) -> Any:
    """Return an entry of a list: an argument, which may follow its flag, or the value of a pair."""
    entry = entries[n]
    if not isinstance(entry, str) or not entry:
        return masked(entry, name)
    flag, sign, rest = entry.partition("=")
    if rest and flag.startswith("-") and is_secret_name(flag):
        return f"{flag}{sign}{MASK}"
    before = entries[n - 1] if n else None
    if isinstance(before, str) and not entry.startswith("-") and " " not in before and is_secret_name(before):
        is_pair = n == 1 and len(entries) == 2
        return MASK if is_pair or before.startswith("-") else masked(entry, name)
    return masked(entry, name)


def is_secret_name(name: str) -> bool:
    """Return whether a field, variable, header, argument or the last part of a dotted key contains a secret, according
    to its name.
    """
    return _is_secret(name) if len(name) <= LONGEST_NAME else _is_secret.__wrapped__(name)


@lru_cache(maxsize=4096)
def _is_secret(name: str) -> bool:
    words = _WORD.sub("_", name.rpartition(".")[2]).replace("-", "_").replace(" ", "_")
    return _NAMES.search(words) is not None and _HARMLESS.search(words) is None
