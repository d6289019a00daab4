"""The base classes of shapes that the server only sends: quick to define, to build and to write, never validated by it.

Two spellings exist, as for models (`app_server_protocol.base`): `WireStruct` is camelCase, `EngineStruct` is
snake_case. An optional field is written as null; a class with `omit_defaults=True` leaves out a field that has its
default, except `always_written` fields. The exporter of schemas passes a struct to pydantic like any type: there it
is replaced by a model with the same fields; `app_server_protocol.parse` reads it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Literal,
    Self,
    TypeVar,
    dataclass_transform,
    get_type_hints,
)

import msgspec

from app_server_protocol.encoding import Json, json_bytes

if TYPE_CHECKING:
    from pydantic import BaseModel, GetCoreSchemaHandler
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
        from pydantic_core import core_schema  # noqa: PLC0415  # only readers of what a server sends need pydantic

        def validate(value: Json, validated: Callable[[Json], BaseModel]) -> Struct:
            if isinstance(value, cls):
                return value
            model = validated(value)
            return cls.of_fields({name: getattr(model, name) for name in model.model_fields_set}, value)

        return core_schema.no_info_wrap_validator_function(
            validate,
            handler.generate_schema(model_of(cls)),
            serialization=core_schema.plain_serializer_function_ser_schema(Struct.to_value),
        )


def requires(*names: str) -> Callable[[dict[str, Any]], None]:
    """Mark fields for `json_schema_extra` that are always written, although they have a default in Python."""

    def mark(schema: dict[str, Any]) -> None:
        schema["required"] = [*dict.fromkeys((*schema.get("required", ()), *names))]

    return mark


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


@cache
def model_of(kind: type[msgspec.Struct]) -> type[BaseModel]:
    """Return a pydantic model with the fields of a struct, for schemas and for fields of models."""
    from pydantic import ConfigDict, Field, create_model  # noqa: PLC0415

    hints = get_type_hints(kind, include_extras=True)
    fields: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        default = ... if field.required else field.default
        if field.default_factory is not msgspec.NODEFAULT:
            default = field.default_factory()
        alias = field.encode_name if field.encode_name != field.name else None
        fields[field.name] = (hints[field.name], Field(default, alias=alias))
    extra: Literal["forbid", "ignore"] = (
        "forbid" if kind.__struct_config__.forbid_unknown_fields else "ignore"
    )
    config = ConfigDict(frozen=True, defer_build=True, populate_by_name=True, extra=extra)
    if always := getattr(kind, "always", ()):
        config["json_schema_extra"] = requires(*always)
    return create_model(
        kind.__name__, __config__=config, __doc__=kind.__doc__, __module__=kind.__module__, **fields
    )
