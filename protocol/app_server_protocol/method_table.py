"""The rows of a table of methods. Each API has one table of all rows of its folder, in a module there (`v1_table`).

A row names the shapes of its parameters and its result. Parameters define the order of their requests: those with the
same value in the field that `ordered_by` names are served one after another, the others independently. Schemas,
documentation and routers are derived from rows.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from types import ModuleType
from typing import Generic, ParamSpec, Protocol, TypeVar, cast

from msgspec import Struct

from app_server_protocol.base import WireModel
from app_server_protocol.encoding import Json, JsonSerializable
from app_server_protocol.outgoing import WireStruct


class Api(Enum):
    """An API with a table. Its folder below `protocol` has the same name."""

    V1 = "v1"
    """Conversation API."""
    V2 = "v2"
    """Thread API."""
    ACP = "acp"
    """The Agent Client Protocol: sessions."""


class NoParams(WireModel):
    """For methods without parameters; whatever is sent is ignored."""


class NoFields(WireModel):
    """For methods whose parameters are an object, though nothing is in it yet."""


class NoResult(WireStruct):
    """For methods whose result says nothing but that it is done."""


P = TypeVar("P", bound=WireModel)
R = TypeVar("R", bound=JsonSerializable)
S = TypeVar("S", bound=JsonSerializable)
A = TypeVar("A", bound=JsonSerializable)
Fields = ParamSpec("Fields")


class ClientRequest(Struct, Generic[P, R], frozen=True):
    """A request of a client. `extension` marks a method that codex 0.58 does not have."""

    method: str
    params: type[P]
    result: type[R]
    doc: str
    extension: bool = False
    experimental: bool = False
    """Whether the method is served only to clients that opted in with `capabilities.experimentalApi`."""

    @property
    def ordered_by(self) -> str | None:
        return self.params.ordered_by

    @property
    def ordered_for_all(self) -> bool:
        return self.params.ordered_for_all

    def parse(self, raw: Json) -> P:
        """Return the parameters as a model; absent and null ones count as `{}`. Raises pydantic's `ValidationError`."""
        return self.params.model_validate({} if raw is None or self.params is NoParams else raw)


class ClientNotification(Struct, frozen=True):
    """A notification of a client."""

    method: str
    doc: str


class ServerNotification(Struct, Generic[Fields, S], frozen=True):
    """A notification of the server, besides the events of conversations."""

    method: str
    make: Callable[Fields, S]
    """Class of the parameters, which makes them from their fields."""
    doc: str

    @property
    def params(self) -> type[S]:
        return cast("type[S]", self.make)


class ServerRequest(Struct, Generic[S, A], frozen=True):
    """A request of the server to its client."""

    method: str
    params: type[S]
    result: type[A]
    doc: str
    extension: bool = False


AnyClientRequest = ClientRequest[Json, Json]
AnyServerNotification = ServerNotification[..., Json]
AnyServerRequest = ServerRequest[Json, Json]


class Table(Struct, frozen=True, kw_only=True):
    """All methods of one API."""

    api: Api
    client_requests: Mapping[str, AnyClientRequest]
    client_notifications: Mapping[str, ClientNotification]
    server_notifications: Mapping[str, AnyServerNotification]
    server_requests: Mapping[str, AnyServerRequest]


class Row(Protocol):
    @property
    def method(self) -> str: ...


AnyRow = TypeVar("AnyRow", bound=Row)


def by_method(rows: Iterable[AnyRow]) -> Mapping[str, AnyRow]:
    """Map rows by their methods. Raises ValueError if two rows have the same method."""
    found: dict[str, AnyRow] = {}
    for row in rows:
        if row.method in found:
            raise ValueError(f"two rows for {row.method}")
        found[row.method] = row
    return found


def table_of(api: Api, modules: Iterable[ModuleType]) -> Table:
    """Collect the rows in these modules. Raises ValueError if two rows have the same method."""
    rows = [row for module in modules for row in vars(module).values()]
    return Table(
        api=api,
        client_requests=by_method(row for row in rows if isinstance(row, ClientRequest)),
        client_notifications=by_method(row for row in rows if isinstance(row, ClientNotification)),
        server_notifications=by_method(row for row in rows if isinstance(row, ServerNotification)),
        server_requests=by_method(row for row in rows if isinstance(row, ServerRequest)),
    )
