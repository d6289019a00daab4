"""The base classes of shapes that the server only sends: quick to define, to build and to write, never validated by it.

Two spellings exist, as for models (`app_server_protocol.base`): `WireStruct` is camelCase, `EngineStruct` is
snake_case. An optional field is written as null; a class with `omit_defaults=True` leaves out a field that has its
default, except `always_written` fields. The exporter of schemas passes a struct to pydantic like any type: there it
is replaced by a model with the same fields; `app_server_protocol.parse` reads it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar, dataclass_transform

import msgspec

from app_server_protocol import base
from app_server_protocol.encoding import Json, json_bytes

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema


T = TypeVar("T")


class _Keywords(msgspec.StructMeta):
    """Makes the fields of every class keywords, those of subclasses too."""

    def __new__(mcls, *definition: Any, **options: Any) -> _Keywords:
        return super().__new__(mcls, *definition, kw_only=True, **options)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(msgspec.field,))
class Struct(msgspec.Struct, frozen=True, gc=False, metaclass=_Keywords):
    """Base of every shape that goes out. No shape holds what leads back to it."""

    always: ClassVar[tuple[str, ...]] = ()
    """Fields that published schemas require although they have a default."""

    def to_json(self) -> bytes:
        """Return compact UTF-8 JSON. Never raises: text that UTF-8 cannot encode is written as an escape."""
        return json_bytes(self)

    def to_value(self) -> Json:
        """Return the value that `to_json` writes, as plain dicts, lists and scalars."""
        return json.loads(self.to_json())

    @classmethod
    def of_fields(cls, values: dict[str, Any], raw: Json) -> Self:
        """Return the struct with these validated fields, which were read from `raw`."""
        return cls(**values)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return base.of_struct(cls, cls.of_fields, handler)


class WireStruct(Struct, rename="camel"):
    """A shape of the client API that only goes out: camelCase on the wire."""


class EngineStruct(Struct):
    """A shape in the engine's own spelling that only goes out: snake_case on the wire as in Python."""


def always_written(default: T) -> T:
    """Declare a field with a default that is written even if its class omits defaults."""
    value: T = msgspec.field(default_factory=lambda: default)
    return value


def struct_from(kind: type[T], value: object, **others: Json) -> T:
    """Make a struct from the fields of a value, which has all of them under the same names except `others`."""
    names: tuple[str, ...] = kind.__struct_fields__  # type: ignore[attr-defined]
    return kind(**{name: getattr(value, name) for name in names if name not in others}, **others)
