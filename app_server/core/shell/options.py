"""Checks the arguments of a command against an allow-list of options.

It refuses every option that is not on the list, and every form that two implementations of a program might parse
differently: abbreviated long options, values that look like options.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from msgspec import Struct

_NUMBER = re.compile(r"[+-]?\d+")
_DIGITS = re.compile(r"-\d+")


class Options(Struct, frozen=True):
    """Short options by letter; long ones by name: `all`, `width=` with a value, `color?` with an optional one."""

    flags: str = ""
    valued: str = ""
    long: frozenset[str] = frozenset()
    numeric: bool = False
    """Whether `-5` is an option, as in `head -5`."""
    most: int | None = None
    """The largest number of operands; None: any."""


def options(
    flags: str = "", valued: str = "", long: str = "", *, numeric: bool = False, most: int | None = None
) -> Options:
    return Options(flags, valued, frozenset(long.split()), numeric, most)


def operands_of(words: Sequence[str], allowed: Options) -> list[str] | None:
    """Return the arguments that are not options; None where one is not allowed."""
    operands: list[str] = []
    rest = iter(words)
    for word in rest:
        if word == "--":
            operands.extend(rest)
        elif word == "-" or not word.startswith("-"):
            operands.append(word)
        elif not _is_allowed(word, rest, allowed):
            return None
    if allowed.most is not None and len(operands) > allowed.most:
        return None
    return operands


def _is_allowed(word: str, rest: Iterator[str], allowed: Options) -> bool:
    if word.startswith("--"):
        return _is_allowed_long(word[2:], rest, allowed.long)
    if allowed.numeric and _DIGITS.fullmatch(word):
        return True
    for at, letter in enumerate(word[1:], 1):
        if letter in allowed.valued:
            return at + 1 < len(word) or _is_value(next(rest, None))
        if letter not in allowed.flags:
            return False
    return True


def _is_allowed_long(option: str, rest: Iterator[str], allowed: frozenset[str]) -> bool:
    name, has_value, _ = option.partition("=")
    if has_value:
        return f"{name}=" in allowed or f"{name}?" in allowed
    if f"{name}=" in allowed:
        return _is_value(next(rest, None))
    return name in allowed or f"{name}?" in allowed


def _is_value(word: str | None) -> bool:
    return word is not None and (not word.startswith("-") or _NUMBER.fullmatch(word) is not None)
