"""Where in a TOML text a key stands, for the message that something is wrong with its value.

Only for text that a TOML parser has accepted: what is read here is taken for valid, so a few kinds of tokens are
enough. No parser that we use tells the places of values that it accepts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import tomli

Key = tuple[str, ...]

MAX_CHARACTERS = 1 << 20
"""In longer files nothing is looked for: a settings file that people read is far shorter."""

TOKEN = (
    r'(?P<text>"""(?:\\[\s\S]|[^\\])*?"{3,5}|\'\'\'[\s\S]*?\'{3,5}|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\')'
    r"|(?P<skip>#[^\n]*|[ \t\r]+)"
    r"|(?P<mark>[\[\]{},=\n])"
    r"|(?P<bare>[^\s\[\]{},=#\"']+)"
)


def find_key(text: str, key: Key) -> tuple[int, int] | None:
    """Line and column, counted from 1, of the first place where `key`, or a part of its table, is given a value."""
    if len(text) > MAX_CHARACTERS:
        return None
    for found, offset in _keys(text):
        if found[: len(key)] == key:
            return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)
    return None


def _keys(text: str) -> Iterator[tuple[Key, int]]:
    """Every key as the parts that lead to it, in the order of the text, and where it is written."""
    table: Key = ()
    """What the last header opened."""
    current: Key = ()
    """What is given a value now."""
    around: list[tuple[str, Key]] = []
    """Lists and inline tables that are open here: how they were opened, and for which key."""
    parts: list[str] = []
    begins, reads_key, in_header = 0, True, False
    for token in re.finditer(TOKEN, text):
        kind, word = token.lastgroup, token[0]
        if kind == "skip" or (kind != "mark" and not reads_key):
            continue
        if kind != "mark":
            begins = begins if parts else token.start()
            parts += _parts(word, quoted=kind == "text")
        elif in_header:
            if word == "]" and parts:
                table, parts = tuple(parts), []
                yield table, begins
            in_header = word != "\n"
        elif word == "=":
            current = (*(around[-1][1] if around else table), *parts)
            parts, reads_key = [], False
            yield current, begins
        elif word == "[" and reads_key:
            in_header = True
        elif word in "[{":
            in_list = around and around[-1][0] == "["
            around.append((word, around[-1][1] if in_list else current))
            reads_key = word == "{"
        elif word in "]}":
            around.pop()
            reads_key = False
        else:
            # A line's end or a comma: in lists they mean nothing, elsewhere a key follows.
            reads_key = not (around and around[-1][0] == "[")


def _parts(word: str, *, quoted: bool) -> list[str]:
    return [tomli.loads(f"part = {word}")["part"]] if quoted else [part for part in word.split(".") if part]
