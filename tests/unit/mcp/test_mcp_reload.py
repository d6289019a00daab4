"""Starting the servers of a conversation anew, and what is told of their states."""

import anyio

from app_server.core.mcp.client_access import ConnectionState, call_tool, server_statuses
from app_server.core.mcp.interfaces import McpFailure
from protocol.engine.events import McpServerState
from tests.unit.mcp.conftest import Rig, fake, gone, until

STARTING, READY, FAILED, CANCELLED = McpServerState


async def test_states_are_told_in_their_order(rig: Rig) -> None:
    async with rig.opened(
        fake("normal", rig.log), fake("silent", rig.log, name="s", startup_timeout_sec=1.0)
    ):
        assert rig.states[:2] == [("fake", STARTING), ("s", STARTING)]
        assert rig.states[2:] == [("fake", READY), ("s", FAILED)]


async def test_a_server_that_is_started_anew_is_another_process(rig: Rig) -> None:
    async with rig.fake("normal") as manager:
        (before,) = rig.pids()
        manager.reload({"fake": fake("normal", rig.log)})
        await manager.ready()
        first, second = rig.pids()
        assert first == before != second
        assert await gone([first])
        assert not (await manager.call("mcp__fake__echo", {"text": "x"})).is_error
    assert [state for _, state in rig.states] == [STARTING, READY, STARTING, READY]


async def test_a_server_that_has_not_started_is_told_of_as_cancelled(rig: Rig) -> None:
    async with rig.opened() as manager:
        manager.reload({"slow": fake("silent", rig.log, name="slow", startup_timeout_sec=30.0)})
        await until(lambda: rig.states == [("slow", STARTING)])
        manager.reload({})
        assert rig.states == [("slow", STARTING), ("slow", CANCELLED)]
        assert not manager.configured


async def test_a_call_that_runs_fails_when_its_server_is_replaced(rig: Rig) -> None:
    failures: list[str] = []

    async with rig.fake("hang-call") as manager:

        async def call() -> None:
            try:
                await call_tool(manager, "fake", "echo", {}, None)
            except McpFailure as failure:
                failures.append(str(failure))

        async with anyio.create_task_group() as group:
            group.start_soon(call)
            await until(lambda: bool(rig.received("tools/call")))
            manager.reload({})
    assert failures == ["tool call failed for `fake/echo`: tools/call failed: Transport closed"]


async def test_what_a_client_sends_along_reaches_the_server(rig: Rig) -> None:
    async with rig.fake("normal") as manager:
        await call_tool(manager, "fake", "echo", {"text": "x"}, {"trace": "t"})
    (sent,) = rig.received("tools/call")
    assert sent["params"] == {"name": "echo", "arguments": {"text": "x"}, "_meta": {"trace": "t"}}


async def test_a_server_that_does_not_list_its_tools_is_shown_with_the_reason(rig: Rig) -> None:
    async with rig.fake("hang-list", startup_timeout_sec=1.0) as manager:
        (status,) = await server_statuses(manager, ["fake"], with_resources=True)
        assert (status.state, status.tools) == (ConnectionState.FAILED, ())
        assert "timed out after 1 seconds" in (status.error or "")
