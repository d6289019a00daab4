"""Origins of items: the answer, the provider and the API that an item of the model came from.

An origin is stored with its item. It is sent to no client and no provider, and no published schema has it.
"""

from typing import Annotated, Final, Protocol, Self, TypeVar

import msgspec
from pydantic import PlainSerializer, PlainValidator
from pydantic.json_schema import SkipJsonSchema

from app_server_protocol.encoding import Json
from app_server_protocol.outgoing import EngineStruct, always_written

FAILED: Final = "failed"
"""Key of `kept` in the origin of an output: whether the tool has failed. Only outputs of calls over the Messages API
have an origin, because that API is sent this fact, in the same words after a restart.
"""


class ItemOrigin(EngineStruct, omit_defaults=True):
    """The answer that an item of the model came in. Items without one came from the session's provider over the
    Responses API.
    """

    answer: str
    """One id for all items of one answer."""
    provider: str
    model: str
    wire: str
    """Name of the API: `chat` or `messages`."""
    kept: dict[str, Json] = always_written({})
    """Values that the provider wants back and no item holds, such as signatures."""


def _readable_origin(raw: object) -> ItemOrigin | None:
    """Return an origin; None for a damaged one, which is dropped."""
    if raw is None or isinstance(raw, ItemOrigin):
        return raw
    try:
        return msgspec.convert(raw, ItemOrigin)
    except msgspec.ValidationError:
        return None


def _written_origin(origin: ItemOrigin | None) -> Json:
    return None if origin is None else origin.to_value()


Origin = SkipJsonSchema[
    Annotated[ItemOrigin | None, PlainValidator(_readable_origin), PlainSerializer(_written_origin)]
]
"""The origin of an item: stored with it, sent to no client and no provider."""


class _Copied(Protocol):
    def model_copy(self, *, update: dict[str, Json]) -> Self: ...


T = TypeVar("T", bound=_Copied)


def origin_of(item: object) -> ItemOrigin | None:
    """Return the origin of an item; None for items of the user, of tools, and of the Responses API."""
    return getattr(item, "origin", None)


def without_origin(item: T) -> T:
    """Return an item without its origin, in the form for clients and providers."""
    return item if origin_of(item) is None else item.model_copy(update={"origin": None})
