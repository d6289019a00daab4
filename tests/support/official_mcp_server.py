"""An MCP server written with the official package: tools, a picture, questions to the user, resources.

`official_mcp_server.py stdio` uses its standard streams. `official_mcp_server.py http` prints the ports on which it
listens: one answers with event streams, one with JSON, and one without sessions.
"""

import asyncio
import base64
import socket
import sys

import uvicorn
from mcp.server import MCPServer
from mcp.server.mcpserver import Context, Image
from pydantic import BaseModel

DOT = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


class Count(BaseModel):
    n: int


def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


def fail() -> str:
    """Always fails."""
    raise ValueError("it failed")


def picture() -> Image:
    """Gives a picture of one dot."""
    return Image(data=DOT, format="png")


async def order(context: Context) -> str:
    """Asks the user how many, and orders them."""
    answer = await context.elicit("How many?", Count)
    return f"ordered {answer.data.n}" if answer.action == "accept" else f"nothing: {answer.action}"


def note() -> str:
    return "a note"


def dot() -> bytes:
    return DOT


def greeting(name: str) -> str:
    return f"Hello {name}"


def offering() -> MCPServer:
    server = MCPServer("official")
    for function in (add, fail, picture, order):
        server.tool()(function)
    server.resource("note://one", mime_type="text/plain")(note)
    server.resource("image://dot", mime_type="image/png")(dot)
    server.resource("greeting://{name}", mime_type="text/plain")(greeting)
    return server


async def serve(json_response: bool, stateless: bool, listener: socket.socket) -> None:
    app = offering().streamable_http_app(json_response=json_response, stateless_http=stateless)
    await uvicorn.Server(uvicorn.Config(app, log_level="error")).serve(sockets=[listener])


async def serve_http() -> None:
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
    print(*(listener.getsockname()[1] for listener in listeners), flush=True)  # noqa: T201  to the test
    async with asyncio.TaskGroup() as group:
        for number, listener in enumerate(listeners):
            group.create_task(serve(number == 1, number == 2, listener))


if __name__ == "__main__":
    if sys.argv[1] == "http":
        asyncio.run(serve_http())
    else:
        offering().run("stdio")
