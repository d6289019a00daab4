"""`dataclass` as in the standard library, but quick to define: a server's start is mostly the making of classes.

The standard one writes and compiles up to seven methods for each class; here only `__init__` is, and the others are
shared. `frozen` is kept by the type checker and not at run time, which also makes instances quicker to build
(docs/adr/0016). Everything else is the same: `field`, `fields`, `replace`, slots, pattern matching, equality, hashes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls=None, /, *, frozen=False, eq=True, repr=True, order=False, **options):
        """Take the standard decorator's parameters, and leave what is rare to it."""

        def decorate(cls):
            # Without a text of its own, the standard decorator writes one from a signature that takes long to find.
            cls.__doc__ = cls.__doc__ or cls.__name__
            if order:
                return dataclasses.dataclass(cls, frozen=frozen, eq=eq, repr=repr, order=True, **options)
            made = dataclasses.dataclass(cls, eq=False, repr=False, **options)
            own, fields = vars(cls), dataclasses.fields(made)
            if repr and "__repr__" not in own:
                made.__repr__ = _repr_of(tuple(field.name for field in fields if field.repr))
            if eq and "__eq__" not in own:
                compared = _values_of(tuple(field.name for field in fields if field.compare))
                made.__eq__ = _eq_of(compared)
                if own.get("__hash__") is None:
                    made.__hash__ = _hash_of(compared) if frozen else None
            return made

        return decorate if cls is None else decorate(cls)


def _values_of(names: tuple[str, ...]) -> Callable[[object], Any]:
    return attrgetter(*names) if names else lambda _: ()


def _eq_of(values: Callable[[object], Any]) -> Callable[[Any, object], bool]:
    def __eq__(self: Any, other: object) -> bool:  # noqa: N807
        if other.__class__ is not self.__class__:
            return NotImplemented
        return bool(values(self) == values(other))

    return __eq__


def _hash_of(values: Callable[[object], Any]) -> Callable[[Any], int]:
    def __hash__(self: Any) -> int:  # noqa: N807
        return hash(values(self))

    return __hash__


def _repr_of(names: tuple[str, ...]) -> Callable[[Any], str]:
    @recursive_repr()
    def __repr__(self: Any) -> str:  # noqa: N807
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{type(self).__qualname__}({shown})"

    return __repr__
