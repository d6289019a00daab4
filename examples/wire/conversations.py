"""A whole client of the conversation API, of nothing but Python: `python examples/wire/conversations.py "Hello"`"""

import itertools
import json
import os
import subprocess
import sys
from typing import Any

server = subprocess.Popen(["app-server"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
ids = itertools.count()
streamed: list[bool] = []


def send(message: dict[str, Any]) -> None:
    assert server.stdin
    server.stdin.write(json.dumps(message) + "\n")
    server.stdin.flush()


def request(method: str, params: dict[str, Any]) -> Any:
    id = next(ids)
    send({"id": id, "method": method, "params": params})
    assert server.stdout
    for message in map(json.loads, server.stdout):
        if message.get("id") == id and "method" not in message:
            if "error" in message:
                sys.exit(message["error"]["message"])
            return message["result"]
        handle(message)
    sys.exit("the server has ended")


def handle(message: dict[str, Any]) -> bool:
    """True once the turn is over."""
    method, params = message["method"], message["params"]
    if method == "codex/event/agent_message_delta":
        print(params["msg"]["delta"], end="", flush=True)
        streamed.append(True)
    elif method == "codex/event/agent_message":
        # Whole, once its deltas are over; over Chat Completions there may be none.
        print("" if streamed else params["msg"]["message"])
        streamed.clear()
    elif method in ("execCommandApproval", "applyPatchApproval"):
        shown = ("command", "cwd", "fileChanges", "reason")
        what = json.dumps({name: params[name] for name in shown if params.get(name)}, indent=1)
        decision = "approved" if input(f"\n{what}\nyes or no? ") == "yes" else "denied"
        send({"id": message["id"], "result": {"decision": decision}})
    elif method in ("codex/event/error", "codex/event/warning"):
        print(params["msg"]["message"], file=sys.stderr)
    elif "id" in message:  # no question is left without an answer: a turn waits for each
        send({"id": message["id"], "error": {"code": -32601, "message": f"{method} is not supported"}})
    return method in ("codex/event/task_complete", "codex/event/turn_aborted")


request("initialize", {"clientInfo": {"name": "tiny", "version": "1.0"}})
opened = request("newConversation", {"cwd": os.getcwd(), "approvalPolicy": "untrusted"})
conversation = opened["conversationId"]
request("addConversationListener", {"conversationId": conversation})
items = [{"type": "text", "data": {"text": sys.argv[1]}}]
request("sendUserMessage", {"conversationId": conversation, "items": items})
assert server.stdin
assert server.stdout
while not handle(json.loads(server.stdout.readline())):
    pass
server.stdin.close()
sys.exit(server.wait())
