"""A strict MCP server of the revision 2026-07-28 alone: `modern_mcp_server.py stdio|http [LOG] [announces]`.

It refuses the handshake and a request without its stamp; over HTTP also a session id, a GET, a notification, and
headers that do not fit the body. It is a script of its own and imports nothing of the program under test. It writes
what it received to LOG. With `http` it prints its port. With `announces` it tells clients that its tools have changed.
"""

import base64
import contextlib
import json
import os
import select
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

VERSION = "2026-07-28"
META = "io.modelcontextprotocol/"
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
COUNT = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
FORM = {
    "method": "elicitation/create",
    "params": {"mode": "form", "message": "How many?", "requestedSchema": COUNT},
}
ROUTED = {
    "type": "object",
    "properties": {
        "region": {"type": "string", "x-mcp-header": "Region"},
        "shard": {"type": "integer", "x-mcp-header": "Shard"},
        "dry": {"type": "boolean", "x-mcp-header": "Dry-Run"},
        "where": {"type": "object", "properties": {"zone": {"type": "string", "x-mcp-header": "Zone"}}},
    },
}
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}}
MIRRORED = {"Region": ("region",), "Shard": ("shard",), "Dry-Run": ("dry",), "Zone": ("where", "zone")}
MARKED_WRONG = {"type": "object", "properties": {"list": {"type": "array", "x-mcp-header": "List"}}}

ROUNDS: dict[str, dict[str, Any]] = {
    "order": {"inputRequests": {"count": FORM}, "requestState": "ordering"},
    "where": {"inputRequests": {"roots": {"method": "roots/list"}}, "requestState": "looking"},
    "both": {"inputRequests": {"roots": {"method": "roots/list", "params": {}}, "count": FORM}},
    "wait": {"requestState": "waiting"},
    "sample": {
        "inputRequests": {"a": FORM, "b": {"method": "sampling/createMessage", "params": {"messages": []}}}
    },
    "page": {"inputRequests": {"a": {**FORM, "params": {"mode": "url", "url": "https://x", "message": "?"}}}},
    "many": {"inputRequests": {str(n): FORM for n in range(17)}},
    "nothing": {},
    "odd": {"inputRequests": {"a": "no request"}},
}
"""What tools ask for in their first round."""


def text(value: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": value}], "resultType": "complete", **more}


class Refused(Exception):
    def __init__(self, code: int, message: str, data: Any = None, status: int = 400) -> None:
        super().__init__(message)
        self.error = {"code": code, "message": message} | ({} if data is None else {"data": data})
        self.status = status


class NeverAnswered(Exception):
    pass


class Dropped(Exception):
    """The connection ends in the middle of a request."""


class ModernServer:
    """The server, whatever its transport. `versions` are the revisions that it claims to support."""

    def __init__(self, log: str = "", versions: tuple[str, ...] = (VERSION,)) -> None:
        self.log, self.versions = log, versions
        self.announces = False
        self.grown = threading.Event()
        self._lock = threading.Lock()

    def note(self, **entry: Any) -> None:
        if self.log:
            with self._lock, open(self.log, "a") as file:
                file.write(json.dumps(entry) + "\n")

    def answer(self, message: dict[str, Any], headers: dict[str, str] | None) -> dict[str, Any]:
        """Return the result of a request. `headers` are those of HTTP, by lower-case name."""
        method, params = message["method"], message.get("params") or {}
        if method == "initialize":
            supported = {"supported": list(self.versions), "requested": params.get("protocolVersion")}
            raise Refused(-32022, "Unsupported protocol version", supported)
        self.check_stamp(params)
        if headers is not None:
            self.check_headers(message, headers)
        match method:
            case "server/discover":
                return {
                    "resultType": "complete",
                    "supportedVersions": list(self.versions),
                    "capabilities": {
                        "tools": {"listChanged": True} if self.announces else {},
                        "resources": {},
                    },
                    "cacheScope": "private",
                    "ttlMs": 0,
                    "_meta": {f"{META}serverInfo": {"name": "strict", "version": "7"}},
                }
            case "tools/list":
                return {"resultType": "complete", "tools": self.tools(), "cacheScope": "private", "ttlMs": 0}
            case "tools/call":
                return self.call(params, message["id"])
            case "resources/list":
                note = {"uri": "note://one", "name": "one"}
                return {"resultType": "complete", "resources": [note, {"uri": "note://asks", "name": "asks"}]}
            case "resources/templates/list":
                return {"resultType": "complete", "resourceTemplates": []}
            case "resources/read":
                return self.read(params)
        raise Refused(-32601, f"no method {method}", status=404)

    def listen(self, message: dict[str, Any], headers: dict[str, str] | None) -> Iterator[dict[str, Any]]:
        """Yield the notifications for a client that listens, until the tools have changed."""
        self.check_stamp(message["params"])
        if headers is not None:
            self.check_headers(message, headers)
        if message["params"]["notifications"] != {"toolsListChanged": True}:
            raise Refused(-32602, "asks for more than it uses")
        meta = {"_meta": {f"{META}subscriptionId": message["id"]}}
        accepted = {"notifications": {"toolsListChanged": True}, **meta}
        yield {"method": "notifications/subscriptions/acknowledged", "params": accepted}
        self.grown.wait(20)
        yield {"method": "notifications/tools/list_changed", "params": meta}

    def check_stamp(self, params: dict[str, Any]) -> None:
        meta = params.get("_meta")
        if not isinstance(meta, dict) or not isinstance(meta.get(f"{META}clientCapabilities"), dict):
            raise Refused(-32602, "the stamp is missing")
        info = meta.get(f"{META}clientInfo")
        if not isinstance(info, dict) or not {"name", "version"} <= info.keys():
            raise Refused(-32602, "the client does not name itself")
        if meta.get(f"{META}protocolVersion") != VERSION:
            raise Refused(-32022, "Unsupported protocol version", {"supported": list(self.versions)})

    def check_headers(self, message: dict[str, Any], headers: dict[str, str]) -> None:
        method, params = message["method"], message["params"]
        wanted = {"mcp-protocol-version": VERSION, "mcp-method": method}
        if method in ("tools/call", "resources/read"):
            wanted["mcp-name"] = params["name" if method == "tools/call" else "uri"]
        if params.get("name") == "route":
            for header, path in MIRRORED.items():
                value: Any = params.get("arguments") or {}
                for key in path:
                    value = value.get(key) if isinstance(value, dict) else None
                if value is not None and not isinstance(value, list | dict):
                    as_text = json.dumps(value) if isinstance(value, bool | int) else value
                    wanted[f"mcp-param-{header.lower()}"] = as_text
        if "mcp-session-id" in headers:
            raise Refused(-32600, "there are no sessions")
        sent = {key: decoded(value) for key, value in headers.items() if key.startswith("mcp-")}
        if sent != wanted:
            raise Refused(-32020, f"headers {sent} do not fit {wanted}")

    def tools(self) -> list[dict[str, Any]]:
        names = ("echo", "hang", "die", "picture", "progress", "endless", "dies-asking", "changed", *ROUNDS)
        tools = [{"name": name, "inputSchema": TEXT} for name in names]
        tools += [{"name": "grow" if not self.grown.is_set() else "grown", "inputSchema": TEXT}]
        tools += [{"name": "échö tool", "inputSchema": TEXT}]
        tools += [{"name": "route", "inputSchema": ROUTED}, {"name": "wrong", "inputSchema": MARKED_WRONG}]
        return [{**tool, "annotations": {"readOnlyHint": True}} for tool in tools]

    def call(self, params: dict[str, Any], key: Any) -> dict[str, Any]:
        name, arguments = params["name"], params.get("arguments") or {}
        answers, state = params.get("inputResponses"), params.get("requestState")
        if answers is None and state is None and name in ROUNDS:
            return {"resultType": "input_required", **ROUNDS[name]}
        match name:
            case "echo" | "échö tool" | "route" | "progress":
                if answers is not None or state is not None:
                    raise Refused(-32602, "answers that belong elsewhere")
                return text(str(arguments.get("text", json.dumps(arguments))))
            case "picture":
                return {
                    "resultType": "complete",
                    "content": [{"type": "image", "data": PNG, "mimeType": "image/png"}],
                }
            case "hang":
                raise NeverAnswered
            case "die":
                raise Dropped
            case "dies-asking":
                if answers is not None:
                    raise Dropped
                return {"resultType": "input_required", **ROUNDS["order"]}
            case "grow":
                self.grown.set()
                return text("grown")
            case "changed":
                raise Refused(-32020, "another tool")
            case "endless":
                rounds = int(state or 0) + 1
                if answers is not None or rounds > int(arguments.get("text", "99")):
                    return text(f"after {rounds - 1} rounds")
                return {"resultType": "input_required", "requestState": str(rounds)}
        if state != ROUNDS[name].get("requestState"):
            raise Refused(-32602, f"a state of another request: {state}")
        return text(json.dumps(answers))

    def read(self, params: dict[str, Any]) -> dict[str, Any]:
        if params["uri"] == "note://asks" and "inputResponses" not in params:
            return {"resultType": "input_required", "inputRequests": {"count": FORM}}
        said = json.dumps(params.get("inputResponses", "a note"))
        return {"resultType": "complete", "contents": [{"uri": params["uri"], "text": said}]}


def decoded(value: str) -> str:
    if value.startswith("=?base64?") and value.endswith("?="):
        return base64.b64decode(value[9:-2], validate=True).decode()
    return value


def notes_of_progress(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield notifications for a client that gave a token, or in a call of the tool that notifies anyway."""
    params = message.get("params") or {}
    token = params["_meta"].get("progressToken", 1 if params.get("name") == "progress" else None)
    if token is not None:
        for progress in (0.25, 0.5):
            yield {
                "method": "notifications/progress",
                "params": {"progressToken": token, "progress": progress},
            }


def serve_stdio(server: ModernServer) -> None:
    server.note(pid=os.getpid(), env={})
    writing = threading.Lock()

    def send(**message: Any) -> None:
        with writing:
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
            sys.stdout.flush()

    def tell(message: dict[str, Any]) -> None:
        for event in server.listen(message, None):
            send(**event)

    for line in sys.stdin:
        message = json.loads(line)
        server.note(received=message)
        if "id" not in message or "method" not in message:
            continue
        if message["method"] == "subscriptions/listen" and server.announces:
            threading.Thread(target=tell, args=(message,), daemon=True).start()
            continue
        with contextlib.suppress(NeverAnswered):
            try:
                result = server.answer(message, None)
                for note in notes_of_progress(message):
                    send(**note)
                send(id=message["id"], result=result)
            except Refused as refused:
                send(id=message["id"], error=refused.error)
            except Dropped:
                os._exit(5)


@contextlib.contextmanager
def served_http(server: ModernServer, *, streams: bool = False) -> Iterator[int]:
    """Serve over HTTP, and yield the port. With `streams`, answers are streams of events."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            headers = {key.lower(): value for key, value in self.headers.items()}
            server.note(received=message, headers=headers)
            if "id" not in message or "method" not in message:
                self.reply(400, {"error": {"code": -32600, "message": "no request"}})
                return
            key = message["id"]
            if message["method"] == "subscriptions/listen" and server.announces:
                self.begin_events()
                for event in server.listen(message, headers):
                    self.send_event(event)
                select.select([self.connection], [], [], 20)
                server.note(closed=key)
                self.close_connection = True
                return
            try:
                result = server.answer(message, headers)
            except Refused as refused:
                self.reply(refused.status, {"id": key, "error": refused.error})
            except Dropped:
                self.close_connection = True
            except NeverAnswered:
                self.begin_events()
                select.select([self.connection], [], [], 20)
                server.note(closed=key)
                self.close_connection = True
            else:
                if not streams:
                    self.reply(200, {"id": key, "result": result})
                    return
                self.begin_events()
                for event in (*notes_of_progress(message), {"id": key, "result": result}):
                    self.send_event(event)
                self.close_connection = True

        def send_event(self, event: dict[str, Any]) -> None:
            self.wfile.write(f"data: {json.dumps({'jsonrpc': '2.0', **event})}\n\n".encode())
            self.wfile.flush()

        def begin_events(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.flush()

        def reply(self, status: int, message: dict[str, Any]) -> None:
            body = json.dumps({"jsonrpc": "2.0", **message}).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Mcp-Session-Id", "never-send-this-back")
            self.end_headers()
            self.wfile.write(body)

        def refuse(self) -> None:
            server.note(received={"method": self.command}, headers={})
            self.reply(405, {"error": {"code": -32600, "message": "only POST"}})

        def do_GET(self) -> None:
            self.refuse()

        def do_DELETE(self) -> None:
            self.refuse()

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listener:
        listener.daemon_threads = True
        threading.Thread(target=listener.serve_forever, args=(0.02,), daemon=True).start()
        try:
            yield listener.server_address[1]
        finally:
            listener.shutdown()


def main() -> None:
    server = ModernServer(sys.argv[2] if len(sys.argv) > 2 else "")
    server.announces = "announces" in sys.argv
    if sys.argv[1] == "stdio":
        serve_stdio(server)
        return
    with served_http(server, streams="streams" in sys.argv) as port:
        sys.stdout.write(f"{port}\n")
        sys.stdout.flush()
        threading.Event().wait()


if __name__ == "__main__":
    main()
