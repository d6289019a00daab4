"""Immutable values: copies with some fields changed, and values whose `repr` hides secrets and bulk."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import msgspec

if TYPE_CHECKING:
    # Type checkers compare the changes with the fields of a struct by this name only.
    from dataclasses import replace as replace
else:
    replace = msgspec.structs.replace


class Redacted(msgspec.Struct, frozen=True):
    """A value of the engine that keeps some fields out of its `repr`: secrets, and long content."""

    HIDDEN: ClassVar[tuple[str, ...]] = ()

    def __repr__(self) -> str:
        shown = (name for name in self.__struct_fields__ if name not in self.HIDDEN)
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"
