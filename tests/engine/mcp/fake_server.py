"""An MCP server that misbehaves on request: `fake_server.py MODE [LOG [modern]]`. It writes its process and the
messages that it receives to LOG. With `modern` it speaks the revision 2026-07-28 alone.

It is a script of its own and imports nothing of the program under test, so both sides can be wrong independently.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
ECHO = {"type": "object", "properties": {"text": {"type": "string"}}}


def tool(name: Any, description: str = "Echo a text.", schema: Any = None) -> dict[str, Any]:
    return {"name": name, "description": description, "inputSchema": schema or ECHO}


def text(value: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": value}], **more}


class FakeServer:
    def __init__(self, mode: str, log: str, *, modern: bool = False) -> None:
        self.mode, self.log, self.modern = mode, log, modern
        self.pages = 0
        self.waiting: Any = None
        self.grown = False

    def note(self, **entry: Any) -> None:
        if self.log:
            with open(self.log, "a") as file:
                file.write(json.dumps(entry) + "\n")

    def raw(self, data: bytes) -> None:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()

    def send(self, **message: Any) -> None:
        self.raw(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def begin(self) -> None:
        self.note(pid=os.getpid(), env=dict(os.environ), cwd=os.getcwd())
        match self.mode:
            case "crash-start":
                sys.exit(3)
            case "deaf":
                for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                    signal.signal(number, signal.SIG_IGN)
            case "daemon":
                nested = (
                    "import subprocess,sys; print(subprocess.Popen(['sleep','600'],start_new_session=True,"
                )
                nested += "stdin=0,stdout=2).pid, flush=True)"
                told = subprocess.run([sys.executable, "-c", nested], stdout=subprocess.PIPE, check=True)
                self.note(pid=int(told.stdout), env={})
            case "garbage":
                self.raw(
                    b"hello I am not json\n\n{}\n[]\n[1,null]\n\x00\xff\n"
                    + b"[" * 5000
                    + b"\n"
                    + b"x" * 70000
                    + b"\n"
                )
            case "stderr-flood":
                flood = lambda: [sys.stderr.write("x" * 1000 + "\n") for _ in range(20_000)]  # noqa: E731
                threading.Thread(target=flood, daemon=True).start()

    def handle(self, message: dict[str, Any]) -> None:
        self.note(received=message)
        method, key = message.get("method"), message.get("id")
        if self.mode == "silent":
            return
        if self.modern and method in ("initialize", "server/discover"):
            self.discover(key, method)
        elif method == "initialize":
            self.initialize(key, message["params"])
        elif method == "server/discover" and self.mode != "init-silent":
            self.send(id=key, error={"code": -32601, "message": "unknown method"})
        elif method == "tools/list":
            self.list_tools(key)
        elif method == "tools/call":
            self.call(key, message["params"])
        elif method == "resources/list":
            cursor = (message.get("params") or {}).get("cursor")
            found = {
                "uri": "note://1",
                "name": "note",
                "mimeType": "text/plain",
                "icons": [{"src": "data:,"}],
                "_meta": {},
            }
            more = {"nextCursor": "two"} if cursor is None else {}
            self.send(
                id=key,
                result={
                    "resources": [found if cursor is None else {**found, "uri": "note://2"}, {"bad": 1}],
                    **more,
                },
            )
        elif method == "resources/templates/list":
            self.send(
                id=key, result={"resourceTemplates": [{"uriTemplate": "note://{n}", "name": "by number"}]}
            )
        elif method == "resources/read":
            self.read(key, message["params"]["uri"])
        elif method is None and self.waiting is not None and key == 77:
            self.send(id=self.waiting, result=text(json.dumps(message.get("result", message.get("error")))))

    def initialize(self, key: Any, params: dict[str, Any]) -> None:
        version = {"old-protocol": "1999-01-01", "no-version": None}.get(self.mode, params["protocolVersion"])
        if self.mode in ("init-error", "init-silent"):
            self.send(id=key, error={"code": -5, "message": "not today"})
            return
        if self.mode == "init-exit":
            self.send(id=key, error={"code": -5, "message": "not today"})
            sys.exit(0)
        if self.mode == "other-versions":
            data = {"supported": ["2027-01-01", "2028-01-01"]}
            self.send(id=key, error={"code": -32022, "message": "unsupported", "data": data})
            return
        self.send(
            id=key,
            result={
                "protocolVersion": version,
                "capabilities": {"tools": {}, "resources": {}},
                "serverInfo": {"name": "fake", "version": "1"},
            },
        )
        self.begin_noise()

    def discover(self, key: Any, method: str) -> None:
        if method == "initialize":
            data = {"supported": ["2026-07-28"]}
            self.send(id=key, error={"code": -32022, "message": "unsupported", "data": data})
            return
        found = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}, "resources": {}}}
        self.send(id=key, result=found)
        self.begin_noise()

    def begin_noise(self) -> None:
        if self.mode == "server-requests":
            for n, asked in enumerate(
                ("sampling/createMessage", "roots/list", "ping", "elicitation/create", "zzz")
            ):
                self.send(id=f"s{n}", method=asked, params={})
            self.send(method="zzz/notification")
            self.send(id=7000, result={})

    def list_tools(self, key: Any) -> None:
        tools: Any = [tool("echo")]
        more: dict[str, Any] = {}
        match self.mode:
            case "hang-list":
                return
            case "crash-list":
                sys.exit(4)
            case "list-error":
                self.send(id=key, error={"code": -5, "message": "no list"})
                return
            case "no-tools":
                self.send(id=key, error={"code": -32601, "message": "unknown method"})
                return
            case "list-no-array":
                tools = "none"
            case "same-cursor":
                more = {"nextCursor": "again"}
            case "endless-pages":
                self.pages += 1
                tools, more = [tool(f"t{self.pages}")], {"nextCursor": f"c{self.pages}"}
            case "names":
                tools = [
                    tool(n)
                    for n in ("echo", "echo", "a" * 200, "bad name!", "bad.name!", "ünïcode", "", "shell")
                ]
            case "bad-schema":
                broken = {"type": "zzz", "$ref": "#/definitions/x"}
                tools = [tool("first", schema=broken), {"name": "no-schema"}, tool(5), None, tool("echo")]
            case "many":
                tools += [tool(f"t{n}", "d" * 200) for n in range(3000)]
            case "long-description":
                tools = [tool("echo", "x" * 2_000_000)]
            case "grows" if self.grown:
                tools += [tool("added")]
            case "filters":
                tools = [tool(n) for n in ("echo", "one", "two")]
        self.send(id=key, result={"tools": tools, **more})

    def call(self, key: Any, params: dict[str, Any]) -> None:
        match self.mode:
            case "crash-call":
                os._exit(5)
            case "grows":
                self.grown = True
                self.send(method="notifications/tools/list_changed")
                self.send(id=key, result=text("grown"))
            case "crash-once" if not os.path.exists(self.log + ".once"):
                open(self.log + ".once", "w").close()
                os._exit(5)
            case "notifies":
                progress = {"progressToken": 1, "progress": 0.5}
                note = {"jsonrpc": "2.0", "method": "notifications/progress", "params": progress}
                self.raw(20_000 * (json.dumps(note).encode() + b"\n"))
            case "asks-and-never-reads":
                ping = {"jsonrpc": "2.0", "id": "unread", "method": "ping", "params": {"text": "x" * 200}}
                self.raw(20_000 * (json.dumps(ping).encode() + b"\n"))
            case "hang-call":
                return
            case "half-message":
                self.raw(b'{"jsonrpc":"2.0","id":')
                return
            case "broken-answer":
                self.raw(b'{"jsonrpc":"2.0","id":%d,"result":{"content":[}}\n' % key)
                return
            case "deep-answer":
                self.raw(b'{"jsonrpc":"2.0","id":%d,"result":' % key + b"[" * 5000 + b"]" * 5000 + b"}\n")
                return
            case "huge":
                self.send(id=key, result=text("a" * 50_000_000))
            case "huge-structured":
                self.send(id=key, result={"content": [], "structuredContent": {"a": "b" * 20_000_000}})
            case "huge-line":
                self.raw(b"a" * 50_000_000 + b"\n")
            case "wrong-id":
                self.send(id=99999, result=text("wrong"))
            case "string-id":
                self.send(id=str(key), result=text("wrong"))
            case "double":
                self.send(id=key, result=text("first"))
                self.send(id=key, result=text("second"))
            case "bad-result":
                self.send(id=key, result={"content": "not a list"})
            case "null-result":
                self.send(id=key, result=None)
            case "error":
                self.send(id=key, error={"code": -1, "message": "boom-7", "data": {"a": 1}})
            case "not-utf8":
                self.raw(
                    b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"ok\xff"}]}}\n'
                    % key
                )
            case "batch":
                self.raw(
                    json.dumps([{"jsonrpc": "2.0", "id": key, "result": text("batched")}]).encode() + b"\n"
                )
            case "image":
                image = {"type": "image", "data": PNG, "mimeType": "image/png"}
                self.send(id=key, result={"content": [{"type": "text", "text": "look"}, image]})
            case "structured":
                self.send(id=key, result=text("{}", structuredContent={"b": 1, "a": [True]}))
            case "failing":
                self.send(id=key, result=text("it failed", isError=True))
            case "elicit":
                self.waiting = key
                asked = {"message": "How many?", "requestedSchema": {"type": "object", "properties": {}}}
                self.send(id=77, method="elicitation/create", params=asked)
        self.raw(b"garbage that is not json\n" if self.mode == "garbage-mid" else b"")
        if self.mode not in ("wrong-id", "string-id", "elicit"):
            self.send(id=key, result=text((params.get("arguments") or {}).get("text", "ok")))

    def read(self, key: Any, uri: str) -> None:
        if uri.startswith("note://"):
            self.send(
                id=key,
                result={"contents": [{"uri": uri, "text": "a note", "mimeType": "text/plain", "_meta": {}}]},
            )
        else:
            self.send(id=key, error={"code": -32002, "message": "no such"})


def main() -> None:
    server = FakeServer(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "", modern="modern" in sys.argv)
    server.begin()
    for line in sys.stdin:
        server.handle(json.loads(line))
    if server.mode == "deaf":
        time.sleep(600)


if __name__ == "__main__":
    main()
