"""Types of fields that several resources of the thread API share, and the mark of an experimental one.

Paths and numbers that a client sends are checked here; those that the server sends are passed through, so that an
oddity in a stored value (a relative cwd, a file name that is not Unicode) does not keep a response from being written.
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, Field, StrictInt
from typing_extensions import TypeAliasType

from app_server_protocol.base import WireModel
from app_server_protocol.encoding import Json
from app_server_protocol.wire_fields import Count

AbsolutePathBuf = TypeAliasType("AbsolutePathBuf", str)
"""An absolute path that the server sends."""

LegacyAppPathString = TypeAliasType("LegacyAppPathString", str)
"""A path as an item or a question shows it."""

ReasoningEffort = TypeAliasType("ReasoningEffort", str)
"""How hard the model should think. Free text: words that are not known here are for the provider to judge."""

RequestId = TypeAliasType("RequestId", str | int)


Integer = Annotated[StrictInt, Field(ge=-(2**63), lt=2**63)]
Small = Annotated[StrictInt, Field(ge=0, lt=2**16)]


SortDirection = TypeAliasType("SortDirection", Literal["asc", "desc"])


EXPERIMENTAL: Final = "x-experimental"
"""Key in a field's schema: only clients that asked for the experimental API know the field."""


Experimental: Final = Field(json_schema_extra={EXPERIMENTAL: True})
"""Mark of a struct's field that belongs to the experimental API."""


def experimental(default: Any = None) -> Any:
    """Declare an optional field of the experimental API."""
    return Field(default=default, json_schema_extra={EXPERIMENTAL: True})


@cache
def experimental_fields(model: type[BaseModel]) -> Mapping[str, str]:
    """Return the experimental fields of a model: their name in Python, and on the wire."""
    found: dict[str, str] = {}
    for name, field in model.model_fields.items():
        extra = field.json_schema_extra
        if isinstance(extra, Mapping) and EXPERIMENTAL in extra:
            found[name] = field.alias or name
    return found


def experimental_fields_in_use(params: BaseModel) -> tuple[str, ...]:
    """Return the experimental fields that a client gave a value, by their names on the wire."""
    values: Mapping[str, Json] = vars(params)
    return tuple(
        spelled
        for name, spelled in experimental_fields(type(params)).items()
        if name in params.model_fields_set and values[name] is not None and values[name] is not False
    )


class AboutThread(WireModel):
    """Parameters of a method that is about one thread."""

    thread_id: str


class InThread(AboutThread):
    """Parameters of a method that waits for those before it about the same thread."""

    ordered_by = "threadId"
    ordered_for_all = True


class ByPages(WireModel):
    """Parameters of a method that lists something by pages."""

    cursor: str | None = None
    limit: Count | None = None


def without(*names: str) -> Callable[[dict[str, Any]], None]:
    """Remove fields for `json_schema_extra` that the schema of the surrounding shape declares instead."""

    def remove(schema: dict[str, Any]) -> None:
        schema["properties"] = {key: one for key, one in schema["properties"].items() if key not in names}
        schema["required"] = [name for name in schema.get("required", ()) if name not in names]

    return remove
