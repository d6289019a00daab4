"""Parameters and results that are one of several shapes: pydantic validates such a base when it is defined, so that who
has none does without.
"""

from typing import Generic, TypeVar

from pydantic import RootModel

from protocol.base import WireModel

U = TypeVar("U")


class WireUnion(WireModel, RootModel[U], Generic[U]):
    """One of several shapes as the whole of a method's parameters or result; `root` is the shape."""
