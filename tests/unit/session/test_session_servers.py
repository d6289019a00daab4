"""What clients learn of the start of MCP servers, also when others are started meanwhile."""

from types import SimpleNamespace
from typing import Any, cast

import anyio

from app_server.core.session.session_servers import SessionServers
from protocol.engine.events import McpServersSettled
from protocol.events.notices import WarningEvent


class Manager:
    """Servers that are ready when a test says so."""

    def __init__(self, *, configured: bool = True) -> None:
        self.configured, self.started = configured, False
        self.servers: object = object()
        self.settled = anyio.Event()
        self.runs = 0

    async def run_servers(self) -> None:
        self.started = True
        self.runs += 1
        await anyio.sleep_forever()

    async def ready(self) -> None:
        await self.settled.wait()

    def reload(self, servers: object) -> None:
        self.servers, self.settled = servers, anyio.Event()

    def failures(self) -> list[Any]:
        return [SimpleNamespace(message="no such program")]

    def notices(self) -> list[str]:
        return ["too many tools"]


class Emitted(list[Any]):
    def emit(self, operation_id: str, event: object) -> None:
        assert operation_id == "", "it happens outside of operations"
        self.append(event)


TOLD = [McpServersSettled(("no such program",)), WarningEvent(message="too many tools")]


async def test_failures_and_notices_are_emitted_once_the_servers_are_ready() -> None:
    manager, emitted = Manager(), Emitted()
    servers = SessionServers(cast(Any, manager), cast(Any, emitted))
    async with anyio.create_task_group() as group:
        servers.start(group)
        await anyio.wait_all_tasks_blocked()
        assert emitted == []
        manager.settled.set()
        await anyio.wait_all_tasks_blocked()
        assert emitted == TOLD
        group.cancel_scope.cancel()


async def test_servers_that_were_replaced_are_not_reported() -> None:
    manager, emitted = Manager(), Emitted()
    servers = SessionServers(cast(Any, manager), cast(Any, emitted))
    async with anyio.create_task_group() as group:
        servers.start(group)
        await anyio.wait_all_tasks_blocked()
        first = manager.settled
        servers.reload({})
        first.set()
        await anyio.wait_all_tasks_blocked()
        assert emitted == []
        manager.settled.set()
        await anyio.wait_all_tasks_blocked()
        assert (emitted, manager.runs) == (TOLD, 1)
        group.cancel_scope.cancel()


async def test_nothing_is_started_where_nothing_is_configured_or_the_session_has_ended() -> None:
    manager, emitted = Manager(configured=False), Emitted()
    servers = SessionServers(cast(Any, manager), cast(Any, emitted))
    async with anyio.create_task_group() as group:
        servers.start(group)
        await anyio.wait_all_tasks_blocked()
        assert manager.runs == 0
    servers.stop()
    servers.reload({})
    assert (manager.runs, emitted) == (0, [])
