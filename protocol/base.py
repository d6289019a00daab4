"""The base classes of all models: the spelling of fields on the wire, and the handling of nulls.

Two spellings exist: `WireModel` is camelCase (requests and results), `EngineModel` is snake_case (events,
operations, stored lines). An optional field is written as null unless it is declared with `omit_none()`.
Validators are built on first use, so importing a module of models stays cheap.
"""

import json
import math
from collections.abc import Callable, Mapping, Set
from functools import cache
from typing import Any, Final, Self

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticSerializationError

Json = Any
"""A JSON value as Python has it; the only place where `Any` is spelled."""


class Model(BaseModel):
    """What every shape has in common: frozen, tolerant of unknown fields, dumped compactly."""

    # Unknown fields are ignored, pydantic's default; `RootModel` does not accept an explicit `extra` setting.
    model_config = ConfigDict(frozen=True, defer_build=True)

    @classmethod
    def model_construct(cls, _fields_set: set[str] | None = None, **values: Any) -> Self:  # type: ignore[override]
        """As pydantic has it, several times as fast for what is built here: names of fields with sound values.

        Histories of thousands of turns are built this way.
        """
        required, fields = _constructed_fields(cls)
        names = values.keys()
        if _fields_set is not None or not (required <= names <= fields.keys()):
            return super().model_construct(_fields_set, **values)
        made = cls.__new__(cls)
        # In the order of the fields, which is that of the JSON.
        object.__setattr__(made, "__dict__", {**fields, **values})
        object.__setattr__(made, "__pydantic_fields_set__", set(values))
        object.__setattr__(made, "__pydantic_extra__", None)
        object.__setattr__(made, "__pydantic_private__", None)
        return made

    def to_json(self) -> bytes:
        """Compact UTF-8 JSON. Never raises: what UTF-8 cannot carry is written as an escape."""
        try:
            return self.__pydantic_serializer__.to_json(self, by_alias=True)
        except PydanticSerializationError:
            return self.escaped_json()

    def to_value(self) -> Json:
        """The same as `to_json`, as plain dicts, lists and scalars."""
        return self.__pydantic_serializer__.to_python(self, mode="json", by_alias=True)

    def escaped_json(self) -> bytes:
        """`to_json` in ASCII, for the rare text with a lone surrogate in it."""
        return json.dumps(_plain(self), separators=(",", ":")).encode("ascii")

    def _fields_as_written(self) -> Json:
        return self.__pydantic_serializer__.to_python(self, by_alias=True, warnings=False)


@cache
def _constructed_fields(model: type[Model]) -> tuple[Set[str], Mapping[str, Any]]:
    """The required fields, and all fields with their defaults; none where instances are more than their fields."""
    fields = model.model_fields
    if (
        any(field.default_factory is not None for field in fields.values())
        or model.__private_attributes__
        or model.__pydantic_root_model__
    ):
        return frozenset(), {}
    required = frozenset(name for name, field in fields.items() if field.is_required())
    return required, {name: None if name in required else field.default for name, field in fields.items()}


class EngineModel(Model):
    """A shape in the engine's own spelling: snake_case on the wire as in Python."""


class WireModel(Model):
    """A shape of the client API: camelCase on the wire; snake_case is understood when read."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, serialize_by_alias=True)


def tag_of(raw: Json) -> str | None:
    """The `type` of a union's member, be it raw or a model already; None if it has none."""
    match raw:
        case Mapping():
            kind = raw.get("type")
        case Model():
            kind = vars(raw).get("type")
        case _:
            kind = None
    return kind if isinstance(kind, str) else None


def requires(*names: str) -> Callable[[dict[str, Any]], None]:
    """For `json_schema_extra`: fields that are always written, though they have a default in Python."""

    def mark(schema: dict[str, Any]) -> None:
        schema["required"] = [*dict.fromkeys((*schema.get("required", ()), *names))]

    return mark


def is_none(value: object) -> bool:
    return value is None


def omit_none(description: str | None = None) -> Any:
    """An optional field that is left out, rather than null, when it has no value."""
    return Field(default=None, exclude_if=is_none, description=description)


_DEEPEST: Final = 200


def _plain(value: Json, depth: int = 0) -> Json:
    """`value` with everything replaced that `json.dumps` would refuse or spell outside of JSON."""
    if depth > _DEEPEST:
        return "(nested too deeply)"
    match value:
        case dict():
            return {str(key): _plain(inner, depth + 1) for key, inner in value.items()}
        case list() | tuple() | set() | frozenset():
            return [_plain(inner, depth + 1) for inner in value]
        case float():
            return value if math.isfinite(value) else None
        case Model():
            return _plain(value._fields_as_written(), depth)
        case bytes():
            return value.decode("utf-8", "replace")
        case str() | int() | None:
            return value
        case _:
            return str(value)
