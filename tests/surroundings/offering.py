"""A server written with the official package: tools, a picture, questions to the user, resources.

`python offering.py stdio` speaks over its streams; `python offering.py http` prints the port that it listens at.
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
    for function in (add, picture, order):
        server.tool()(function)
    server.resource("note://one", mime_type="text/plain")(note)
    server.resource("image://dot", mime_type="image/png")(dot)
    server.resource("greeting://{name}", mime_type="text/plain")(greeting)
    return server


async def serve_http() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)  # noqa: T201  to the test
    config = uvicorn.Config(offering().streamable_http_app(), log_level="error")
    await uvicorn.Server(config).serve(sockets=[listener])


if __name__ == "__main__":
    if sys.argv[1] == "http":
        asyncio.run(serve_http())
    else:
        offering().run("stdio")
