"""`app_server.client` exports every shape that its programs receive or pass, so that they import nothing else."""

import inspect
import typing
from collections.abc import Iterator

import pytest
from typing_extensions import TypeAliasType

import app_server.client
from app_server.client import exports as library
from app_server.client import server_events
from app_server.client.events import TURN_ROWS, ThreadEvent
from app_server_protocol.v2 import v2_table

pytestmark = pytest.mark.scenario

OWN = ("app_server.client", "app_server_protocol.v2", "app_server_protocol.policy")
PLAIN = {"AbsolutePathBuf", "LegacyAppPathString", "RequestId", "ReasoningEffort"}
"""Type names of texts and numbers. A program needs no class for them."""


def parts_of(shape: object) -> Iterator[object]:
    """Yield the types in the annotations of a shape: of its fields, and for a class of the library of its methods."""
    yield from typing.get_args(shape)
    if isinstance(shape, TypeAliasType):
        yield shape.__value__
    elif (origin := typing.get_origin(shape)) is not None and origin is not typing.Generic:
        yield origin
    if isinstance(shape, type) and shape.__module__.startswith(OWN):
        yield from getattr(shape, "__orig_bases__", ())
        yield from typing.get_type_hints(shape).values()
        if shape.__module__.startswith("app_server.client"):
            for name, member in inspect.getmembers(shape):
                function = member.fget if isinstance(member, property) else inspect.unwrap(member)
                if inspect.isroutine(function) and not name.startswith("_"):
                    yield from typing.get_type_hints(function).values()


def reachable(shapes: list[object]) -> dict[str, object]:
    """Return the named shapes of this project among these shapes and all their parts, by name."""
    found: dict[int, object] = {}
    while shapes:
        shape = shapes.pop()
        if id(shape) not in found:
            found[id(shape)] = shape
            shapes.extend(parts_of(shape))
    return {
        shape.__name__: shape
        for shape in found.values()
        if isinstance(shape, type | TypeAliasType) and (shape.__module__ or "").startswith(OWN)
    }


def test_what_a_program_is_handed_can_be_imported() -> None:
    public = [value for name, value in vars(library).items() if not name.startswith("_")]
    wire = {
        name for name, shape in reachable(public).items() if not is_own(shape) and not name.startswith("_")
    }
    assert len(wire) > 150
    assert sorted(wire - vars(library).keys() - PLAIN) == []


def is_own(shape: object) -> bool:
    """Return whether a shape is a class of the library. One that is not exported is only a part of exported ones."""
    return inspect.isclass(shape) and shape.__module__.startswith("app_server.client")


def test_the_package_offers_the_exported_names() -> None:
    names = [name for name in vars(library) if not name.startswith("_")]
    assert set(names) <= set(dir(app_server.client))
    assert [name for name in names if getattr(app_server.client, name) is not getattr(library, name)] == []
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        getattr(app_server.client, "Nothing")  # noqa: B009  a type checker would see it


def test_streams_have_the_shape_of_every_notification_about_a_thread() -> None:
    events = {*typing.get_args(ThreadEvent)}
    of_threads = [row for row in TURN_ROWS.values() if "thread_id" in row.params.__struct_fields__]
    assert [row.method for row in of_threads if row.params not in events] == []


def test_every_notification_can_be_imported() -> None:
    known = {id(shape) for module in (library, server_events) for shape in vars(module).values()}
    missing = [
        row.method for row in v2_table.TABLE.server_notifications.values() if id(row.params) not in known
    ]
    assert missing == []
