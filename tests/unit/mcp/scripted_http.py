"""An HTTP server for MCP whose answers a test decides; it remembers what it was asked."""

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from protocol.structs import Json

TOOLS = {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}
HANDSHAKE = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "x", "version": "1"}}


@dataclass
class Asked:
    method: str
    headers: Message
    message: Json


@dataclass
class ScriptedHttp:
    """`answer` writes the response to a message, or returns False for the usual one."""

    answer: Callable[[BaseHTTPRequestHandler, Json], bool] = lambda handler, message: False
    asked: list[Asked] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)

    @contextlib.contextmanager
    def serving(self) -> Iterator[str]:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.asked.append(Asked("POST", self.headers, message))
                if not outer.answer(self, message):
                    reply_json(self, message, usual(message))

            def do_DELETE(self) -> None:
                outer.asked.append(Asked("DELETE", self.headers, None))
                reply(self, 200)

            def log_message(self, format: str, *args: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/mcp"
        finally:
            self.stop.set()
            server.shutdown()
            thread.join()
            server.server_close()

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


def reply(handler: BaseHTTPRequestHandler, status: int, body: bytes = b"", **headers: str) -> None:
    handler.send_response(status)
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


def reply_json(handler: BaseHTTPRequestHandler, message: Json, result: Json, **headers: str) -> None:
    if "id" not in message or "method" not in message:
        reply(handler, 202)
        return
    body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()
    reply(handler, 200, body, Content_Type="application/json", **headers)


def begin_events(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Type", "text/event-stream; charset=utf-8")
    handler.send_header("Connection", "close")
    handler.end_headers()
    handler.close_connection = True
