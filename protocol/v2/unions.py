"""Parameters and results that are one of several shapes, as a whole.

Apart from the other bases, so that a process without them does not load what pydantic needs for them.
"""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from pydantic import RootModel

from protocol.base import WireModel

U = TypeVar("U")


class WireUnion(WireModel, RootModel[U], Generic[U]):
    """One of several shapes as the whole of a method's parameters or result; `root` is the shape."""


def without(*names: str) -> Callable[[dict[str, Any]], None]:
    """For `json_schema_extra`: fields that the schema of the surrounding shape declares instead."""

    def remove(schema: dict[str, Any]) -> None:
        schema["properties"] = {key: one for key, one in schema["properties"].items() if key not in names}
        schema["required"] = [name for name in schema.get("required", ()) if name not in names]

    return remove
