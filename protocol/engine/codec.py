"""Items of the engine as JSON objects and back, for stored lines that no older event can stand for. Pure."""

from __future__ import annotations

from functools import cache
from typing import Final, get_args

from pydantic import TypeAdapter, ValidationError

from protocol.base import Json
from protocol.engine.items import Item

NOT_STORED: Final = ("texts",)
"""Fields that are known of live items only."""

KINDS: Final = {model.__name__: model for model in get_args(Item)}


def item_to_value(item: Item) -> Json:
    """`{"kind": CLASS, …fields}`"""
    fields = _adapter(type(item)).dump_python(item, mode="json", exclude={*NOT_STORED})
    return {"kind": type(item).__name__, **fields}


def item_from_value(value: Json) -> Item | None:
    """None where it is of no known kind, or damaged."""
    if not isinstance(value, dict):
        return None
    kind = KINDS.get(str(value.get("kind")))
    if kind is None:
        return None
    try:
        return _adapter(kind).validate_python({key: field for key, field in value.items() if key != "kind"})
    except ValidationError:
        return None


def _adapter(kind: type[Item]) -> TypeAdapter[Item]:
    return _adapter_by_name(kind.__name__)


@cache
def _adapter_by_name(name: str) -> TypeAdapter[Item]:
    return TypeAdapter(KINDS[name])
