"""Sample values of structs, made by the types of their fields: for tests that need some value of each class."""

from __future__ import annotations

import types
from collections.abc import Collection, Mapping
from enum import Enum
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from msgspec import NODEFAULT, Struct
from msgspec.structs import fields

T = TypeVar("T", bound=Struct)


def sample(kind: type[T]) -> T:
    """Return a value of a class, with the defaults that it has. Raises TypeError for a type that is not known here."""
    hints = get_type_hints(kind, include_extras=True)
    required = (
        each for each in fields(kind) if each.default is NODEFAULT and each.default_factory is NODEFAULT
    )
    return kind(**{each.name: _value(hints[each.name]) for each in required})


def with_samples(values: Collection[T], kinds: Collection[type[T]]) -> list[T]:
    """Return the values, and a sample of each class of which there is none among them."""
    there = {type(value) for value in values}
    return [*values, *(sample(kind) for kind in kinds if kind not in there)]


def _value(hint: Any) -> object:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated or origin is Literal:
        return _value(arguments[0]) if origin is Annotated else arguments[0]
    if origin in (Union, types.UnionType):
        return None if type(None) in arguments else _value(arguments[0])
    kind = origin or hint
    if hint is Any:
        return None
    if not isinstance(kind, type):
        raise TypeError(f"no sample of {hint!r} is known")
    if issubclass(kind, Struct):
        return sample(kind)
    if issubclass(kind, Enum):
        return next(iter(kind))
    if issubclass(kind, Mapping):
        return {}
    return {str: "x", bytes: b"x", bool: True, int: 1, float: 1.0}.get(kind, ())
