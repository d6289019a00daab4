"""Converts the words of a command line to text and back, in the form for users.

`join` quotes so that POSIX shells and fish read back the same words; `split` undoes simple quoting. Neither knows
operators, expansions or other syntax: `script` finds what a shell would execute.
"""

from __future__ import annotations

import string
from collections.abc import Iterator, Sequence

NUL_COMMAND = "<command included NUL byte>"
"""Text in place of a command that cannot be passed to any shell."""

_BARE, _SINGLE, _DOUBLE = 1, 2, 4
_BARE_CHARACTERS = frozenset(string.ascii_letters + string.digits + "+-./:@]_")
_ESCAPED_IN_DOUBLE = frozenset('$`"\\')


def join(argv: Sequence[str]) -> str:
    if any("\0" in word for word in argv):
        return NUL_COMMAND
    return " ".join(map(_quote, argv))


def _quote(word: str) -> str:
    """Return the word in as few differently quoted pieces as a left-to-right reading gives."""
    if not word:
        return "''"
    if _BARE_CHARACTERS.issuperset(word):
        return word
    pieces = []
    start = 0
    while start < len(word):
        end, styles = _longest_piece(word, start)
        pieces.append(_piece(word[start:end], styles))
        start = end
    return "".join(pieces)


def _longest_piece(word: str, start: int) -> tuple[int, int]:
    """Return the end of the longest piece that one style of quotes can hold, and the possible styles."""
    styles = _BARE | _SINGLE | _DOUBLE
    for at in range(start, len(word)):
        # A caret starts a new piece: after other characters some shells read it as a history substitution.
        remaining = 0 if word[at] == "^" and at > start else styles & _styles_of(word[at])
        if not remaining:
            return at, styles
        styles = remaining
    return len(word), styles


def _styles_of(character: str) -> int:
    bare = _BARE if character in _BARE_CHARACTERS else 0
    single = 0 if character in "'\\" else _SINGLE  # fish reads backslashes in single quotes
    double = 0 if character in "`$!^" else _DOUBLE
    return bare | single | double


def _piece(text: str, styles: int) -> str:
    if styles & _BARE:
        return text
    if styles & _SINGLE:
        return f"'{text}'"
    return '"' + "".join("\\" + c if c in _ESCAPED_IN_DOUBLE else c for c in text) + '"'


def word_set(text: str) -> frozenset[str]:
    """Return a set of words, written as one string."""
    return frozenset(text.split())


def split(text: str) -> list[str] | None:
    """Return the words of `text`, without quotes and comments; None if a quote or an escape is not closed.

    `shlex.split` is not used: it starts a comment at a `#` inside of a word and keeps the newline of a continued line.
    """
    words: list[str] = []
    word: list[str] | None = None
    characters = iter(text)
    for character in characters:
        if character in " \t\n":
            if word is not None:
                words.append("".join(word))
            word = None
        elif character == "#" and word is None:
            while next(characters, "\n") != "\n":
                pass
        else:
            word = [] if word is None else word
            if (read := _read_unit(character, characters)) is None:
                return None
            word.append(read)
    if word is not None:
        words.append("".join(word))
    return words


def _read_unit(first: str, rest: Iterator[str]) -> str | None:
    """Return one character, escape or quoted part of a word; None if it is not closed."""
    if first == "\\":
        following = next(rest, None)
        return "" if following == "\n" else following
    if first == "'":
        part: list[str] = []
        for character in rest:
            if character == "'":
                return "".join(part)
            part.append(character)
        return None
    if first == '"':
        return _read_double(rest)
    return first


def _read_double(rest: Iterator[str]) -> str | None:
    part: list[str] = []
    for character in rest:
        if character == '"':
            return "".join(part)
        if character == "\\":
            following = next(rest, None)
            if following is None:
                return None
            part.append(
                following
                if following in _ESCAPED_IN_DOUBLE
                else ""
                if following == "\n"
                else "\\" + following
            )
        else:
            part.append(character)
    return None
