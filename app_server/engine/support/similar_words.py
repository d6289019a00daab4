"""The known word that a mistyped one may stand for. Imported as a module, so that it is loaded for mistakes only."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def similar(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that is most similar; None if there is none."""
    return next(iter(get_close_matches(word, known, n=1)), None)
