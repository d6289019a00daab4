"""A server written with the official SDK, on free ports of the loopback: answering with event streams, with JSON,
and without sessions. Prints the ports."""

import asyncio
import socket

import uvicorn
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from pydantic import BaseModel


class Count(BaseModel):
    n: int


def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


def fail() -> str:
    """Always fails."""
    raise ValueError("it failed")


async def ask(context: Context) -> str:
    """Asks the user."""
    answer = await context.elicit("How many?", Count)
    return str(answer.action)


def note() -> str:
    return "a note"


def offering() -> MCPServer:
    server = MCPServer("official")
    for function in (add, fail, ask):
        server.tool()(function)
    server.resource("note://one", mime_type="text/plain")(note)
    return server


async def serve(json_response: bool, stateless: bool, listener: socket.socket) -> None:
    app = offering().streamable_http_app(json_response=json_response, stateless_http=stateless)
    await uvicorn.Server(uvicorn.Config(app, log_level="error")).serve(sockets=[listener])


async def main() -> None:
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
    print(*(listener.getsockname()[1] for listener in listeners), flush=True)  # noqa: T201  to the test
    async with asyncio.TaskGroup() as group:
        for json_response, stateless, listener in zip(
            (False, True, False), (False, False, True), listeners, strict=True
        ):
            group.create_task(serve(json_response, stateless, listener))


if __name__ == "__main__":
    asyncio.run(main())
