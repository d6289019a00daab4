"""Paths as clients write them, and texts that UTF-8 can encode. Fast to import: it does without pydantic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

if TYPE_CHECKING:
    from collections.abc import Callable

    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema


def is_unicode(text: str) -> bool:
    """Whether UTF-8 can encode it: it has no lone surrogate."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def sound_path(text: str) -> str:
    """`text`, if it can be the path of a file. Raises ValueError."""
    if "\0" in text:
        raise ValueError("a path must not contain a NUL character")
    if not is_unicode(text):
        raise ValueError("a path must be valid Unicode text")
    return text


def absolute_path(text: str) -> str:
    """`text`, if it can be the path of a file wherever the server runs. Raises ValueError."""
    if not text.startswith("/"):
        raise ValueError("AbsolutePathBuf deserialized without a base path: expected an absolute path")
    return sound_path(text)


class _PathRule:
    """What pydantic's `AfterValidator(check)` is, which only models need."""

    def __init__(self, check: Callable[[str], str]) -> None:
        self._check = check

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        from pydantic_core import core_schema  # noqa: PLC0415 - who asks has loaded it

        return core_schema.no_info_after_validator_function(self._check, handler(source))


PathText = Annotated[str, _PathRule(sound_path)]
AbsolutePath = Annotated[str, _PathRule(absolute_path)]
"""An absolute path that a client sends."""
