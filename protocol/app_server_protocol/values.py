"""Immutable values: copies with some fields changed, and values whose `repr` hides secrets and bulk."""

from __future__ import annotations

import dataclasses
from typing import (
    TYPE_CHECKING,
    ClassVar,
)

import msgspec

if TYPE_CHECKING:
    from dataclasses import replace as replace


if not TYPE_CHECKING:

    def replace(value, /, **changes):
        """Copy a struct or a dataclass with some fields changed."""
        return (msgspec.structs if isinstance(value, msgspec.Struct) else dataclasses).replace(
            value, **changes
        )


class Redacted(msgspec.Struct, frozen=True):
    """A value of the engine that keeps some fields out of its `repr`: secrets, and long content."""

    HIDDEN: ClassVar[tuple[str, ...]] = ()

    def __repr__(self) -> str:
        shown = (name for name in self.__struct_fields__ if name not in self.HIDDEN)
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"
