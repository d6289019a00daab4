"""A whole client of ACP, of nothing but Python: `python examples/wire/acp.py "What is here?"`"""

import itertools
import json
import os
import subprocess
import sys
from typing import Any

agent = subprocess.Popen(["app-server", "acp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
ids = itertools.count()


def send(message: dict[str, Any]) -> None:
    assert agent.stdin
    agent.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    agent.stdin.flush()


def request(method: str, params: dict[str, Any]) -> Any:
    """Send a request, and handle what comes before its response. A prompt is answered when its turn is over."""
    id = next(ids)
    send({"id": id, "method": method, "params": params})
    assert agent.stdout
    for message in map(json.loads, agent.stdout):
        if "method" in message:
            handle(message)
        elif message.get("id") == id:
            return message["result"] if "result" in message else sys.exit(message["error"]["message"])
    sys.exit("the agent has ended")


def handle(message: dict[str, Any]) -> None:
    match message["method"]:
        case "session/update":
            show(message["params"]["update"])
        case "session/request_permission":
            send({"id": message["id"], "result": {"outcome": ask(message["params"])}})
        case method if "id" in message:  # nothing else was announced in `clientCapabilities`
            send({"id": message["id"], "error": {"code": -32601, "message": f"{method} is not supported"}})
        case _:
            pass


def show(update: dict[str, Any]) -> None:
    match update["sessionUpdate"]:
        case "agent_message_chunk" if update["content"]["type"] == "text":
            print(update["content"]["text"], end="", flush=True)
        case "tool_call":
            print(f"\n* {update['title']}")
        case "tool_call_update" if "status" in update:
            print(f"  {update['status']}")


def ask(params: dict[str, Any]) -> dict[str, Any]:
    """Show what is asked: a title, and the texts and diffs of the call; then the options."""
    print(f"\n{params['toolCall'].get('title', '')}")
    for part in params["toolCall"].get("content") or []:
        print(part["content"].get("text", "") if part["type"] == "content" else json.dumps(part, indent=1))
    print(
        *(f"{each['kind']}: {each['name']}" for each in params["options"]), "? ", sep="\n", end="", flush=True
    )
    chosen = sys.stdin.readline().strip()
    for option in params["options"]:
        if option["kind"] == chosen:
            return {"outcome": "selected", "optionId": option["optionId"]}
    return {"outcome": "cancelled"}


request("initialize", {"protocolVersion": 1, "clientCapabilities": {}})
session = request("session/new", {"cwd": os.getcwd(), "mcpServers": []})["sessionId"]
prompt = [{"type": "text", "text": sys.argv[1]}]
ended = request("session/prompt", {"sessionId": session, "prompt": prompt})
print()
assert agent.stdin
agent.stdin.close()  # the agent stores the session, ends its commands, and exits
agent.wait()
sys.exit(ended["stopReason"] != "end_turn")
