"""Reads the messages of a server: validates JSON as a struct, as a model or as a union of them.

pydantic validates, by a model with the fields of each struct. Such a model is built with the first value of the struct,
and of a union only for the members that occur: building all items of threads takes longer than a whole turn.
"""

from collections.abc import Mapping, Sequence
from functools import cache, partial
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from msgspec.structs import fields
from pydantic import PlainValidator, TypeAdapter
from pydantic.fields import FieldInfo
from pydantic_core import PydanticKnownError
from typing_extensions import TypeAliasType

from app_server_protocol.encoding import Json
from app_server_protocol.outgoing import Struct, model_of

T = TypeVar("T")

CONTAINERS = (tuple, list, dict, Sequence, Mapping)


def read(kind: type[T], raw: Json) -> T:
    """Validate JSON of a server as a struct, model or union. Raises pydantic's `ValidationError`."""
    hint: Json = kind
    value: T = _adapter(hint).validate_python(raw)
    return value


@cache
def _adapter(kind: Json) -> TypeAdapter[Any]:
    return TypeAdapter(_shallow(kind))


def _shallow(hint: Json) -> Json:
    """Return the hint with a validating function in place of each struct, and of each union of structs
    that has a tag.
    """
    if isinstance(hint, TypeAliasType):
        return _shallow(hint.__value__)
    if isinstance(hint, type) and issubclass(hint, Struct):
        return Annotated[Any, PlainValidator(partial(_read_struct, hint))]
    origin: Json = get_origin(hint)
    arguments = get_args(hint)
    if origin is Annotated:
        kind, *others = arguments
        tag = next((each.discriminator for each in others if isinstance(each, FieldInfo)), None)
        if isinstance(tag, str):
            members = get_args(kind)
            if not all(isinstance(each, type) and issubclass(each, Struct) for each in members):
                return hint
            return Annotated[Any, PlainValidator(partial(_read_member, tag, members))]
        return Annotated[(_shallow(kind), *others)]
    if origin in (Union, UnionType):
        structs = [each for each in arguments if _shallow(each) is not each]
        return Union[tuple(map(_shallow, arguments))] if len(structs) == 1 else hint  # noqa: UP007
    return origin[tuple(map(_shallow, arguments))] if origin in CONTAINERS else hint


def _read_struct(kind: type[Struct], raw: Json) -> Struct:
    if isinstance(raw, kind):
        return raw
    return kind.of_model(model_of(kind, _shallow).model_validate(raw), raw)


def _read_member(tag: str, members: tuple[type[Struct], ...], raw: Json) -> Struct:
    """Validate a value as the member of a union that its discriminator names."""
    if isinstance(raw, members):
        return raw
    if not isinstance(raw, Mapping):
        raise PydanticKnownError("model_attributes_type")
    known = _by_tag(tag, members)
    key = next((each.encode_name for each in fields(members[0]) if each.name == tag), tag)
    if key not in raw:
        raise PydanticKnownError("union_tag_not_found", {"discriminator": f"'{tag}'"})
    named = raw[key]
    kind = known.get(named) if isinstance(named, str) else None
    if kind is None:
        expected = ", ".join(f"'{each}'" for each in known)
        details = {"discriminator": f"'{tag}'", "tag": str(named), "expected_tags": expected}
        raise PydanticKnownError("union_tag_invalid", details)
    return _read_struct(kind, raw)


@cache
def _by_tag(tag: str, members: tuple[type[Struct], ...]) -> Mapping[str, type[Struct]]:
    found: dict[str, type[Struct]] = {}
    for member in members:
        hint = get_type_hints(member)[tag]
        assert get_origin(hint) is Literal, f"{member.__name__}.{tag} names no value"
        found |= dict.fromkeys(map(str, get_args(hint)), member)
    return found
