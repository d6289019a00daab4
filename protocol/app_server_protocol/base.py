"""The base classes of all models: the spelling of fields on the wire, and the handling of nulls. Also the model of a
struct, for models that contain one.

Two spellings exist: `WireModel` is camelCase (requests and results), `EngineModel` is snake_case (events,
operations, stored lines). An optional field is written as null unless it is declared with `omit_none()`.
Validators are built on first use, so importing a module of models stays cheap.
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, ClassVar, Final, Literal, Protocol, get_type_hints

import msgspec
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    PrivateAttr,
    WithJsonSchema,
    create_model,
)
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema, PydanticSerializationError, core_schema, to_json

from app_server_protocol.encoding import Json, escaped_json


class Model(BaseModel):
    """Base of every shape that comes in: frozen, tolerant of unknown fields, dumped compactly."""

    # Unknown fields are ignored, pydantic's default; `RootModel` does not accept an explicit `extra` setting.
    model_config = ConfigDict(frozen=True, defer_build=True)

    def to_json(self) -> bytes:
        """Return compact UTF-8 JSON. Never raises: text that UTF-8 cannot encode is written as an escape."""
        try:
            return to_json(self, by_alias=True)
        except PydanticSerializationError:
            return self.escaped_json()

    def to_value(self) -> Json:
        """Return the value that `to_json` writes, as plain dicts, lists and scalars."""
        return self.model_dump(mode="json", by_alias=True)

    def escaped_json(self) -> bytes:
        """Return `to_json` in ASCII, for the rare text with a lone surrogate in it."""
        return escaped_json(self.model_dump(by_alias=True, warnings=False))


class EngineModel(Model):
    """A shape in the engine's own spelling: snake_case on the wire as in Python."""


class WireModel(Model):
    """A shape of the client API: camelCase on the wire; snake_case is understood when read."""

    ordered_by: ClassVar[str | None] = None
    """Field of parameters, in its spelling on the wire; requests with the same value in it are served in order."""
    ordered_for_all: ClassVar[bool] = False
    """Whether that order applies to all connections of a server, because the field names a conversation."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, serialize_by_alias=True)


class CancellableParams(WireModel):
    """Parameters of a request that the client can cancel by a later one, which names it by its id."""

    _request_id: str | int | None = PrivateAttr(default=None)

    @property
    def request_id(self) -> str | int | None:
        """Id of the request; None if the parameters are not those of a request."""
        return self._request_id

    def of_request(self, id: str | int) -> None:
        """Set the id of the request."""
        self._request_id = id


def tag_of(raw: Json) -> str | None:
    """Return the `type` of a union's member, which is JSON or a model already; None if it has none."""
    match raw:
        case Mapping():
            kind = raw.get("type")
        case Model() | msgspec.Struct():
            kind = getattr(raw, "type", None)
        case _:
            kind = None
    return kind if isinstance(kind, str) else None


ELSEWHERE: Final = "https://definitions/"
"""Prefix of references in a generated schema whose definition the generator does not have."""

Foreign = dict[str, Json]
"""A value of a shape that this server never sends."""


def unserved(name: str) -> WithJsonSchema:
    """Mark a value whose shape this server never sends: its published definition is data of the exporter."""
    return WithJsonSchema({"$ref": f"{ELSEWHERE}{name}"})


def is_none(value: object) -> bool:
    return value is None


def omit_none() -> Any:
    """Declare an optional field that is left out, instead of written as null, if it has no value."""
    return Field(default=None, exclude_if=is_none)


def requires(*names: str) -> Callable[[dict[str, Any]], None]:
    """Mark fields for `json_schema_extra` that are always written, although they have a default in Python."""

    def mark(schema: dict[str, Any]) -> None:
        schema["required"] = [*dict.fromkeys((*schema.get("required", ()), *names))]

    return mark


def checked_text(check: Callable[[str], str], source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
    """Return the schema of a text that `check` checks."""
    return core_schema.no_info_after_validator_function(check, handler(source))


class JsonWriter(Protocol):
    """A value that writes itself as JSON."""

    def to_value(self) -> Json:
        """Return the value."""
        ...


def of_struct(
    kind: type[msgspec.Struct],
    of_fields: Callable[[dict[str, Any], Json], JsonWriter],
    handler: GetCoreSchemaHandler,
) -> CoreSchema:
    """Return the schema of a struct: it is read like the model of it, and written as itself. `of_fields` makes one from
    its fields and the value that was read.
    """

    def write(value: JsonWriter) -> Json:
        return value.to_value()

    def validate(value: Json, validated: Callable[[Json], BaseModel]) -> object:
        if isinstance(value, kind):
            return value
        model = validated(value)
        return of_fields({name: getattr(model, name) for name in model.model_fields_set}, value)

    return core_schema.no_info_wrap_validator_function(
        validate,
        handler.generate_schema(model_of(kind)),
        serialization=core_schema.plain_serializer_function_ser_schema(write),
    )


@cache
def model_of(kind: type[msgspec.Struct]) -> type[BaseModel]:
    """Return a pydantic model with the fields of a struct, for schemas and for fields of models."""
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
