"""An MCP server written with fastmcp: `fastmcp_server.py stdio|http`. With `http` it prints its port."""

import asyncio
import base64
import socket
import sys
from pathlib import Path

import uvicorn
from fastmcp import Context, FastMCP
from fastmcp.utilities.types import Image

DOT = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def add(a: int, b: int) -> int:
    return a + b


def picture() -> Image:
    return Image(data=DOT, format="png")


async def work(steps: int, context: Context) -> str:
    for step in range(steps):
        await context.report_progress(step, steps)
    meta = context.request_context.meta if context.request_context else None
    return f"worked {steps} steps for {(meta or {}).get('progressToken')}"


async def order(context: Context) -> str:
    answer = await context.elicit("How many?", response_type=int)
    return f"ordered {answer.data}" if answer.action == "accept" else f"nothing: {answer.action}"


async def hang(log: str) -> str:
    file = Path(log)
    file.write_text("begun")
    try:
        await asyncio.sleep(3600)
    finally:
        file.write_text("cancelled")
    return "too late"


def note() -> str:
    return "a note"


def main() -> None:
    server = FastMCP("fast")
    for tool in (add, picture, work, order, hang):
        server.tool(tool)
    server.resource("note://one")(note)
    if sys.argv[1] == "stdio":
        server.run("stdio", show_banner=False)
        return
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)  # noqa: T201  to the test
    config = uvicorn.Config(server.http_app(), log_level="error")
    asyncio.run(uvicorn.Server(config).serve(sockets=[listener]))


if __name__ == "__main__":
    main()
