"""Reads the messages of a server and stored values: validates JSON as a struct, as a model or as a union of them.

1. msgspec converts a struct whose fields it knows, in one call. This is the usual way. Fields have their names of the
   wire, or those of Python.
2. A struct with other fields (models, unions by a tag, checked texts) is read field by field.
3. pydantic validates models and checked fields. It also explains each value that msgspec refuses: it accepts some
   of them, such as a number for a decimal, and names the location of the mistake in all others.

No pydantic model is ever built for a struct: building the models of all items takes longer than a whole turn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import cache, partial
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
from pydantic import TypeAdapter, ValidationError, WithJsonSchema
from pydantic.fields import FieldInfo
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError
from typing_extensions import TypeAliasType

from app_server_protocol.encoding import Json
from app_server_protocol.outgoing import Struct

T = TypeVar("T")

Reader = Callable[[Json], Any]
Place = tuple[int | str, ...]
"""Location of a value in another one: names of fields, and indexes of lists."""

LISTS: Final = (tuple, list, Sequence)
MAPPINGS: Final = (dict, Mapping)
SIMPLE: Final = (str, int, float, bool, NoneType, Any)
_MISSING: Final = object()


def read(kind: type[T], raw: Json) -> T:
    """Validate JSON as a struct, model or union. Raises pydantic's `ValidationError`."""
    hint: Json = kind
    value: T = _reader(hint)(raw)
    return value


@cache
def _reader(declared: Json) -> Reader:
    """Return the function that reads values of a type."""
    hint = _bare(declared)
    if _is_native(hint):
        return partial(_read_native, hint)
    if _is_flat(hint):
        return partial(_read_renamed, hint, _other_names(hint))
    return _slow_reader(hint)


@cache
def _slow_reader(hint: Json) -> Reader:
    """Return the function that reads values that msgspec cannot convert, and explains those that it has refused."""
    return _piecewise(hint) or TypeAdapter(hint).validate_python


def _piecewise(hint: Json) -> Reader | None:
    """Return the function that reads a value by its parts; None if pydantic has to read it as a whole."""
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return _StructReader(hint)
    origin: Json = get_origin(hint)
    arguments = get_args(hint)
    if origin is Annotated:
        return _tagged_union(arguments[0], arguments[1:])
    if origin in (Union, UnionType):
        [other, *others] = [each for each in arguments if each is not NoneType]
        return None if others or len(arguments) == 1 else partial(_read_optional, other)
    if origin in LISTS and (origin is not tuple or arguments[1:] == (...,)):
        return partial(_read_list, tuple if origin is tuple else list, arguments[0])
    if origin in MAPPINGS and arguments[0] is str:
        return partial(_read_mapping, arguments[1])
    return None


def _tagged_union(union: Json, notes: Sequence[object]) -> Reader | None:
    tag = next((each.discriminator for each in notes if isinstance(each, FieldInfo)), None)
    members = get_args(_bare(union))
    is_structs = all(isinstance(each, type) and issubclass(each, msgspec.Struct) for each in members)
    return _UnionReader(tag, members) if isinstance(tag, str) and members and is_structs else None


# --- types
def _bare(hint: Json) -> Json:
    """Return a type without its name, and without notes that are for schemas only."""
    while True:
        if isinstance(hint, TypeAliasType):
            hint = hint.__value__
        elif hasattr(hint, "__supertype__"):
            hint = hint.__supertype__
        elif _is_annotated(hint) and all(map(_is_for_schemas, get_args(hint)[1:])):
            hint = get_args(hint)[0]
        else:
            return hint


def _is_annotated(hint: Json) -> bool:
    origin: Json = get_origin(hint)
    return origin is Annotated


def _is_for_schemas(note: object) -> bool:
    if isinstance(note, FieldInfo):
        return note.discriminator is None and not note.metadata
    return isinstance(note, WithJsonSchema | SkipJsonSchema)


@cache
def _is_native(declared: Json) -> bool:
    """Return whether msgspec can convert to a type as a whole. It does not know aliases of typing_extensions."""
    if isinstance(declared, TypeAliasType):
        return False
    hint = _bare(declared)
    if hint in SIMPLE:
        return True
    if isinstance(hint, type) and issubclass(hint, Enum):
        return True
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return _is_flat(hint) and not _other_names(hint)
    origin: Json = get_origin(hint)
    arguments = get_args(hint)
    if origin is Literal:
        return True
    if origin in (Union, UnionType):
        others = [each for each in arguments if each is not NoneType]
        return len(others) == 1 and _is_native(others[0])
    if origin in (*LISTS, *MAPPINGS):
        return all(each is ... or _is_native(each) for each in arguments)
    return False


def _field_types(kind: type[msgspec.Struct]) -> dict[str, Json]:
    hints = get_type_hints(kind, include_extras=True)
    return {name: hints[name] for name in kind.__struct_fields__}


def _is_flat(hint: Json) -> bool:
    """Return whether a type is a struct and msgspec can convert to the type of each field."""
    if not (isinstance(hint, type) and issubclass(hint, msgspec.Struct)) or _keeps_raw(hint):
        return False
    return all(_is_native(each) for each in _field_types(hint).values())


def _other_names(kind: type[msgspec.Struct]) -> frozenset[str]:
    """Return the names of fields that have another name on the wire. A value may have either."""
    return frozenset(each.name for each in msgspec.structs.fields(kind) if each.name != each.encode_name)


def _keeps_raw(kind: type[msgspec.Struct]) -> bool:
    """Return whether a struct makes itself of the JSON, too."""
    return issubclass(kind, Struct) and "of_fields" in vars(kind)


# --- values
def _read_native(hint: Json, raw: Json) -> Any:
    try:
        return msgspec.convert(raw, hint)
    except msgspec.ValidationError:
        return _slow_reader(hint)(raw)


def _read_renamed(kind: type[msgspec.Struct], names: frozenset[str], raw: Json) -> Any:
    """Read a struct by the names of the wire if no field has its own name."""
    if isinstance(raw, dict) and names.isdisjoint(raw):
        return _read_native(kind, raw)
    return _slow_reader(kind)(raw)


def _read_optional(other: Json, raw: Json) -> Any:
    return None if raw is None else _reader(other)(raw)


def _read_list(kind: type[list[Any]] | type[tuple[Any, ...]], element: Json, raw: Json) -> Any:
    if not isinstance(raw, list | tuple):
        return _slow_reader(kind)(raw)
    reader, values, wrong = _reader(element), [], _Mistakes("list")
    for n, each in enumerate(raw):
        with wrong.at(n):
            values.append(reader(each))
    wrong.check()
    return kind(values)


def _read_mapping(element: Json, raw: Json) -> Any:
    if not isinstance(raw, Mapping):
        return _slow_reader(dict)(raw)
    key_reader, reader, values, wrong = _reader(str), _reader(element), {}, _Mistakes("dict")
    for key, each in raw.items():
        with wrong.at(key):
            values[key_reader(key)] = reader(each)
    wrong.check()
    return values


class _StructReader:
    """Reads the fields of a struct one by one."""

    def __init__(self, kind: type[msgspec.Struct]) -> None:
        self._kind = kind
        types = _field_types(kind)
        self._fields = [(each, _reader(types[each.name])) for each in msgspec.structs.fields(kind)]
        self._allowed = (
            {name for each, _ in self._fields for name in (each.encode_name, each.name)}
            if kind.__struct_config__.forbid_unknown_fields
            else None
        )

    def __call__(self, raw: Json) -> msgspec.Struct:
        if isinstance(raw, self._kind):
            return raw
        wrong = _Mistakes(self._kind.__name__)
        if not isinstance(raw, Mapping):
            wrong.add((), "model_type", raw, {"class_name": self._kind.__name__})
            wrong.check()
        values: dict[str, Any] = {}
        for field, reader in self._fields:
            given = raw.get(field.encode_name, raw.get(field.name, _MISSING))
            if given is not _MISSING:
                with wrong.at(field.encode_name):
                    values[field.name] = reader(given)
            elif field.required:
                wrong.add((field.encode_name,), "missing", raw)
        if self._allowed is not None:
            for key in raw:
                if key not in self._allowed:
                    wrong.add((key,), "extra_forbidden", raw[key])
        wrong.check()
        return self._kind.of_fields(values, raw) if issubclass(self._kind, Struct) else self._kind(**values)


class _UnionReader:
    """Reads a value as the member of a union that its tag names."""

    def __init__(self, tag: str, members: Sequence[type[msgspec.Struct]]) -> None:
        self._members = tuple(members)
        [field] = [each for each in msgspec.structs.fields(members[0]) if each.name == tag]
        self._key = field.encode_name
        self._by_tag: dict[str, type[msgspec.Struct]] = {}
        for member in members:
            hint: Json = _bare(get_type_hints(member)[tag])
            origin: Json = get_origin(hint)
            assert origin is Literal, f"{member.__name__}.{tag} names no value"
            self._by_tag |= dict.fromkeys(map(str, get_args(hint)), member)

    def __call__(self, raw: Json) -> msgspec.Struct:
        if isinstance(raw, self._members):
            return raw
        wrong = _Mistakes("union")
        if not isinstance(raw, Mapping):
            wrong.add((), "model_attributes_type", raw)
        elif self._key not in raw:
            wrong.add((), "union_tag_not_found", raw, {"discriminator": f"'{self._key}'"})
        wrong.check()
        named = raw[self._key]
        kind = self._by_tag.get(named) if isinstance(named, str) else None
        if kind is None:
            expected = ", ".join(f"'{each}'" for each in self._by_tag)
            details = {"discriminator": f"'{self._key}'", "tag": str(named), "expected_tags": expected}
            wrong.add((), "union_tag_invalid", raw, details)
            wrong.check()
        member: msgspec.Struct = _reader(kind)(raw)
        return member


# --- mistakes
class _Mistakes:
    """The mistakes of one value, with their locations."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._details: list[InitErrorDetails] = []
        self._place: int | str = 0

    def at(self, place: int | str) -> _Mistakes:
        """Collect the mistakes of a part, in a `with` block."""
        self._place = place
        return self

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: object, traceback: object) -> bool:
        if not isinstance(error, ValidationError):
            return False
        for each in error.errors(include_url=False):
            self._details.append(_moved(each, (self._place, *each["loc"])))
        return True

    def add(self, place: Place, kind: str, given: Json, context: dict[str, Any] | None = None) -> None:
        self._details.append(InitErrorDetails(type=kind, loc=place, input=given, ctx=context or {}))

    def check(self) -> None:
        """Raise ValidationError if there are mistakes."""
        if self._details:
            raise ValidationError.from_exception_data(self._title, self._details)


def _moved(error: ErrorDetails, place: Place) -> InitErrorDetails:
    """Return an error with another location."""
    try:
        details = InitErrorDetails(
            type=error["type"], loc=place, input=error["input"], ctx=error.get("ctx", {})
        )
        ValidationError.from_exception_data("", [details])
    except (KeyError, TypeError):  # an error of a validator of ours
        custom = PydanticCustomError(error["type"], "{message}", {"message": error["msg"]})
        details = InitErrorDetails(type=custom, loc=place, input=error["input"])
    return details
