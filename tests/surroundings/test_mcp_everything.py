"""The server that the makers of MCP show their protocol with, from the npm registry: tools, pictures and resources,
over both transports. Where there is no npm, or no registry, there is nothing to be shown.
"""

import contextlib
import json
import os
import socket
from collections.abc import AsyncIterator

import anyio
import pytest

from tests.support.scripted_model import calls, reply, says
from tests.support.world import MakeWorld
from tests.surroundings.npm import npm_packages

PACKAGE = "@modelcontextprotocol/server-everything@2026.8.31"
START_SECONDS = 30


@pytest.fixture(scope="session")
def program(pytestconfig: pytest.Config) -> tuple[str, ...]:
    script = "@modelcontextprotocol/server-everything/dist/index.js"
    node, (path,) = npm_packages(pytestconfig, "mcp-everything", [PACKAGE], [script])
    return node, path


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


@contextlib.asynccontextmanager
async def reached(program: tuple[str, ...], way: str) -> AsyncIterator[str]:
    """The server's table in the configuration."""
    limit = f"startup_timeout_sec = {START_SECONDS}\n"
    if way == "stdio":
        node, script = program
        yield f"[mcp_servers.everything]\ncommand = {json.dumps(node)}\nargs = {json.dumps([script, 'stdio'])}\n{limit}"
        return
    port = free_port()
    environment = {"PATH": os.environ["PATH"], "PORT": str(port)}
    async with await anyio.open_process([*program, "streamableHttp"], env=environment) as process:
        try:
            with anyio.fail_after(START_SECONDS):
                assert process.stderr is not None
                said = b""
                while b"listening" not in said:
                    said += await process.stderr.receive()
            yield f'[mcp_servers.everything]\nurl = "http://127.0.0.1:{port}/mcp"\n{limit}'
        finally:
            process.kill()


@pytest.mark.parametrize("way", ["stdio", "http"])
async def test_tools_pictures_and_resources(world: MakeWorld, program: tuple[str, ...], way: str) -> None:
    replies = (
        reply(
            calls("mcp__everything__echo", {"message": "ping"}, "echo"),
            calls("mcp__everything__get-sum", {"a": 19, "b": 23}, "sum"),
            calls("mcp__everything__get-sum", {"a": "many"}, "wrong"),
            calls("mcp__everything__get-tiny-image", {}, "picture"),
            calls("list_mcp_resources", {"server": "everything"}, "resources"),
            calls("list_mcp_resource_templates", {"server": "everything"}, "templates"),
            calls(
                "read_mcp_resource", {"server": "everything", "uri": "demo://resource/dynamic/text/7"}, "text"
            ),
            calls(
                "read_mcp_resource", {"server": "everything", "uri": "demo://resource/dynamic/blob/7"}, "blob"
            ),
        ),
        reply(says("done")),
    )
    async with reached(program, way) as tables, world(*replies, tables=tables) as w:
        turn = await w.client.turn(await w.open())
        first, second = w.model.requests
        outputs = second.outputs()
    assert "mcp__everything__echo" in first.tools
    assert "ping" in outputs["echo"]
    assert "42" in outputs["sum"]
    assert "number" in outputs["wrong"]
    assert "demo://resource/" in outputs["resources"]
    assert "demo://resource/dynamic/text/{resourceId}" in outputs["templates"]
    assert "Resource 7" in outputs["text"]
    assert "demo://resource/dynamic/blob/7" in outputs["blob"]
    (picture,) = (
        item["output"] for item in second.input if item.get("call_id") == "picture" and "output" in item
    )
    assert "input_image" in [part["type"] for part in picture]
    results = {event["call_id"]: event["result"] for event in turn.of("mcp_tool_call_end")}
    assert not results["sum"]["Ok"].get("isError")
    assert len(results) == 8
