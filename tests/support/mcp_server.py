"""A small MCP server over stdio: `mcp_server.py [--die]`. A script of its own, which imports nothing of ours.

With HINTS in its environment, a JSON object, it offers a tool for each member, whose annotations are the value.
"""

import json
import os
import sys
from typing import Any

TEXT = {"type": "object", "properties": {"text": {"type": "string"}}}
TOOLS = [
    {"name": name, "description": name, "inputSchema": TEXT, "annotations": {"readOnlyHint": True}}
    for name in ("echo", "fail", "hang", "ask")
]
TOOLS.append({"name": "change", "description": "Changes something", "inputSchema": TEXT})
for name, hints in json.loads(os.environ.get("HINTS", "{}")).items():
    TOOLS.append({"name": name, "inputSchema": TEXT} | ({} if hints is None else {"annotations": hints}))
NOTE = {"uri": "notes://one", "name": "one", "mimeType": "text/plain"}


def send(**message: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def text(value: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": value}], **more}


def call(id: Any, name: str, arguments: dict[str, Any]) -> None:
    match name:
        case "echo" | "change":
            send(id=id, result=text(arguments.get("text", "")))
        case "fail":
            send(id=id, result=text("boom-7", isError=True))
        case "ask":
            schema = {"type": "object", "properties": {"project": {"type": "string"}}}
            params = {"message": "Which project?", "requestedSchema": schema}
            send(id=f"ask-{id}", method="elicitation/create", params=params)
            answer = json.loads(sys.stdin.readline())
            said = answer.get("result", {"action": "refused"})
            send(id=id, result=text(f"{said['action']} {said.get('content')}"))
        case "hang":
            pass
        case hinted if hinted.startswith("hinted"):
            send(id=id, result=text(f"{hinted} ran"))
        case _:
            send(id=id, error={"code": -32602, "message": f"no tool {name}"})


def main() -> None:
    if "--die" in sys.argv:
        sys.exit(3)
    for line in sys.stdin:
        message = json.loads(line)
        id, params = message.get("id"), message.get("params") or {}
        match message.get("method"):
            case "initialize":
                able: dict[str, Any] = {"tools": {}, "resources": {}}
                info = {"name": "notes", "version": "1"}
                version = params["protocolVersion"]
                send(id=id, result={"protocolVersion": version, "capabilities": able, "serverInfo": info})
            case "tools/list":
                send(id=id, result={"tools": TOOLS})
            case "tools/call":
                call(id, params["name"], params.get("arguments") or {})
            case "resources/list":
                send(id=id, result={"resources": [NOTE]})
            case "resources/templates/list":
                send(id=id, result={"resourceTemplates": []})
            case "resources/read":
                send(id=id, result={"contents": [{"uri": params["uri"], "text": "the first note"}]})
            case "ping":
                send(id=id, result={})


if __name__ == "__main__":
    main()
