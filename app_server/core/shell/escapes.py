"""Escapes of `$'…'`, `echo -e` and `printf`, and what these two print."""

from __future__ import annotations

import re
from collections.abc import Sequence

PRINTERS = frozenset({"echo", "printf"})
MAX_ROUNDS = 100
"""How often a format is used for more arguments."""

_HEX = "([0-9a-fA-F]{1,%d})"
_ESCAPE = re.compile(
    rf"\\(?:x\{{([0-9a-fA-F]+)\}}|x{_HEX % 2}|u{_HEX % 4}|U{_HEX % 8}|(0[0-7]{{1,3}}|[0-7]{{1,3}})|c(.)|(.))",
    re.DOTALL,
)
_LETTERS = {
    "a": "\a",
    "b": "\b",
    "e": "\x1b",
    "E": "\x1b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
}
_LITERAL_LETTERS = frozenset("\\'\"?")
_DIRECTIVE = re.compile(r"%(%|[-+ #0]*\d*(?:\.\d+)?[a-zA-Z])")


def decode_escapes(text: str) -> str:
    return _ESCAPE.sub(_decoded, text)


def _decoded(match: re.Match[str]) -> str:
    if digits := next(filter(None, match.groups()[:4]), None):
        code = int(digits, 16) if len(digits) <= 8 else 0
        return chr(code) if code < 0x110000 and not 0xD800 <= code < 0xE000 else "�"
    if match[5]:
        return chr(int(match[5], 8) % 256)
    if match[6]:
        return chr(ord(match[6].upper()) % 32)
    letter = match[7]
    return _LETTERS.get(letter, letter if letter in _LITERAL_LETTERS else match[0])


def printed(words: Sequence[str]) -> str | None:
    """What `echo` or `printf` with its arguments prints; None for other programs."""
    match words:
        case ["echo", *rest]:
            while rest and re.fullmatch("-[neE]+", rest[0]):
                rest = rest[1:]
            return decode_escapes(" ".join(rest))
        case ["printf", *rest]:
            if rest[:1] == ["--"]:
                rest = rest[1:]
            return _formatted(rest[0], rest[1:]) if rest else ""
        case _:
            return None


def _formatted(form: str, arguments: Sequence[str]) -> str:
    """Without widths and precisions."""
    form = decode_escapes(form)
    left = list(reversed(arguments))

    def value(match: re.Match[str]) -> str:
        if match[1] == "%":
            return "%"
        argument = left.pop() if left else ""
        return decode_escapes(argument) if match[1].endswith("b") else argument

    parts = []
    for _ in range(MAX_ROUNDS):
        before = len(left)
        parts.append(_DIRECTIVE.sub(value, form))
        if not left or len(left) == before:
            break
    return "".join(parts)
