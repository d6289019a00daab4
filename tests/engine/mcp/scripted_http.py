"""An HTTP server for MCP whose answers a test decides. It records its requests."""

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from email.message import Message

from app_server_protocol.encoding import Json
from tests.support.http_server import HttpHandler, http_server

TOOLS = {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}
HANDSHAKE = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "x", "version": "1"}}


@dataclass
class Asked:
    method: str
    headers: Message
    message: Json


@dataclass
class ScriptedHttp:
    """Scripted server. `answer` writes the response to a message, or returns False for the usual one."""

    answer: Callable[[HttpHandler, Json], bool] = lambda handler, message: False
    listen: Callable[[HttpHandler], None] = lambda handler: handler.reply(405)
    """Function that writes the response to a client which listens for messages of the server."""
    asked: list[Asked] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)

    @contextlib.contextmanager
    def serving(self) -> Iterator[str]:
        outer = self

        class Handler(HttpHandler):
            protocol_version = "HTTP/1.1"

            def serve(self) -> None:
                message = json.loads(self.body() or b"null")
                outer.asked.append(Asked(self.command, self.headers, message))
                if self.command == "GET":
                    outer.listen(self)
                elif message is None:
                    self.reply(200)
                elif not outer.answer(self, message):
                    reply_json(self, message, usual(message))

        with http_server(Handler) as url:
            try:
                yield f"{url}/mcp"
            finally:
                self.stop.set()

    def messages(self, method: str) -> list[Asked]:
        return [one for one in self.asked if one.message and one.message.get("method") == method]


def usual(message: Json) -> Json:
    match message.get("method"):
        case "initialize":
            return HANDSHAKE
        case "tools/list":
            return TOOLS
        case "tools/call":
            return {"content": [{"type": "text", "text": "ok"}]}
    return None


def reply_json(handler: HttpHandler, message: Json, result: Json, **headers: str) -> None:
    if "id" not in message or "method" not in message:
        handler.reply(202)
        return
    body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()
    handler.reply(200, body, Content_Type="application/json", **headers)


def begin_events(handler: HttpHandler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Type", "text/event-stream; charset=utf-8")
    handler.send_header("Connection", "close")
    handler.end_headers()
    handler.close_connection = True
