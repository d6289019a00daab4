"""Picks the operands out of a program's arguments, for a summary of the command. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from app_server.core.shell.script import OPERATORS

Words = Sequence[str]


def until_operator(words: Words) -> Words:
    return words[: next((n for n, word in enumerate(words) if word in OPERATORS), len(words))]


def without_values(words: Words, valued: Collection[str]) -> list[str]:
    """The words without those options of `valued` and the values behind them; all words behind `--`."""
    kept: list[str] = []
    rest = iter(words)
    for word in rest:
        if word == "--":
            return [*kept, *rest]
        if _wants_value(word, valued):
            next(rest, None)
        elif not (word.startswith("--") and "=" in word):
            kept.append(word)
    return kept


def operands_in(words: Iterable[str]) -> list[str]:
    return [word for word in words if not word.startswith("-")]


def operand(words: Iterable[str]) -> str | None:
    return nth(operands_in(words), 0)


def nth(words: Words, number: int) -> str | None:
    return words[number] if number < len(words) else None


def _wants_value(word: str, valued: Collection[str]) -> bool:
    """`-A`, and `-rnA`; in `-A3` the value is there."""
    if word in valued:
        return True
    is_cluster = len(word) > 2 and word[0] == "-" and word[1] != "-"
    return is_cluster and f"-{word[1]}" not in valued and f"-{word[-1]}" in valued
