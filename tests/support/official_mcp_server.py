"""An MCP server written with the official package: tools, a picture, questions to the user, resources.

`official_mcp_server.py stdio` uses its standard streams. `official_mcp_server.py http` prints the ports on which it
listens: one answers with event streams, one with JSON, and one without sessions. With `modern` as another argument it
refuses the handshake, so that only the revision 2026-07-28 is left.
"""

import asyncio
import base64
import json
import os
import socket
import sys
import threading
from pathlib import Path
from typing import Annotated, Any

import uvicorn
from mcp.server import MCPServer
from mcp.server.elicitation import AcceptedElicitation, ElicitationResult
from mcp.server.mcpserver import Context, Image
from mcp.server.mcpserver.resolve import Elicit, Resolve
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


def ask_count() -> Elicit[Count]:
    return Elicit("How many?", Count)


async def order(answer: Annotated[ElicitationResult[Count], Resolve(ask_count)]) -> str:
    """Asks the user how many, and orders them."""
    if isinstance(answer, AcceptedElicitation):
        return f"ordered {answer.data.n}"
    return f"nothing: {answer.action}"


async def work(context: Context, steps: int) -> str:
    """Reports its progress, to a client that gave a token for it."""
    for step in range(steps):
        await context.report_progress(step, steps)
    meta = context.request_context.meta or {}
    return f"worked {steps} steps for {meta.get('progress_token')}"


async def hang(log: str) -> str:
    """Never ends by itself. Writes to a file that it has begun, and that it was cancelled."""
    file = Path(log)
    file.write_text("begun")
    try:
        await asyncio.sleep(3600)
    finally:
        file.write_text("cancelled")
    return "too late"


def note() -> str:
    return "a note"


def dot() -> bytes:
    return DOT


def greeting(name: str) -> str:
    return f"Hello {name}"


def offering() -> MCPServer:
    server = MCPServer("official")
    for function in (add, fail, picture, order, work, hang):
        server.tool()(function)
    server.resource("note://one", mime_type="text/plain")(note)
    server.resource("image://dot", mime_type="image/png")(dot)
    server.resource("greeting://{name}", mime_type="text/plain")(greeting)
    return server


def refusal(message: Any) -> bytes | None:
    """Return the answer to a handshake; None for any other message."""
    if not isinstance(message, dict) or message.get("method") != "initialize":
        return None
    data = {"supported": ["2026-07-28"], "requested": message["params"]["protocolVersion"]}
    error = {"code": -32022, "message": "Unsupported protocol version", "data": data}
    return json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}).encode()


def without_handshake(app: Any) -> Any:
    """Return the application with the handshake refused."""

    async def refusing(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        body, more = b"", True
        while more:
            event = await receive()
            body, more = body + event.get("body", b""), event.get("more_body", False)
        answer = refusal(json.loads(body or b"null"))
        if answer is not None:
            headers = [(b"content-type", b"application/json")]
            await send({"type": "http.response.start", "status": 400, "headers": headers})
            await send({"type": "http.response.body", "body": answer})
            return
        replayed = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def replay() -> Any:
            return next(replayed, None) or await receive()

        await app(scope, replay, send)

    return refusing


def refuse_handshake() -> None:
    """Answer the handshake ahead of the server, whose stdin becomes a pipe."""
    given = os.fdopen(os.dup(0), "rb")
    end, begin = os.pipe()
    os.dup2(end, 0)

    def pass_on() -> None:
        with os.fdopen(begin, "wb", buffering=0) as server:
            for line in given:
                answer = refusal(json.loads(line))
                if answer is None:
                    server.write(line)
                else:
                    os.write(1, answer + b"\n")

    threading.Thread(target=pass_on, daemon=True).start()


async def serve(json_response: bool, stateless: bool, listener: socket.socket) -> None:
    app: Any = offering().streamable_http_app(json_response=json_response, stateless_http=stateless)
    if "modern" in sys.argv:
        app = without_handshake(app)
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
        if "modern" in sys.argv:
            refuse_handshake()
        offering().run("stdio")
