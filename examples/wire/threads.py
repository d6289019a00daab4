"""A whole client of the thread API, of nothing but Python: `python examples/wire/threads.py "What is here?"`"""

import itertools
import json
import os
import subprocess
import sys
from typing import Any

server = subprocess.Popen(["app-server"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
ids = itertools.count()
changes: dict[str, Any] = {}  # what a patch would do, by the id of its item
streamed: set[str] = set()  # ids of messages that were shown as they came


def send(message: dict[str, Any]) -> None:
    assert server.stdin
    server.stdin.write(json.dumps(message) + "\n")
    server.stdin.flush()


def receive() -> Any:
    assert server.stdout
    line = server.stdout.readline()
    return json.loads(line) if line else sys.exit("the server has ended")


def request(method: str, params: dict[str, Any]) -> Any:
    """Send a request, and handle what comes before its response."""
    send({"id": next(ids), "method": method, "params": params})
    while "method" in (message := receive()):
        handle(message)
    return message["result"] if "result" in message else sys.exit(message["error"]["message"])


def handle(message: dict[str, Any]) -> Any:
    """Show a notification, or answer a question; give the turn once it is over."""
    params = message["params"]
    match message["method"]:
        case "item/agentMessage/delta":
            print(params["delta"], end="", flush=True)
            streamed.add(params["itemId"])
        case "item/started" if params["item"]["type"] == "fileChange":
            changes[params["item"]["id"]] = params["item"]["changes"]
        case "item/completed" if params["item"]["type"] == "agentMessage":
            print("" if params["item"]["id"] in streamed else params["item"]["text"])
        case "item/commandExecution/requestApproval":
            answer(message, f"{params['command']} in {params['cwd']}")
        case "item/fileChange/requestApproval":
            answer(message, json.dumps(changes[params["itemId"]], indent=1))
        case "turn/completed":
            return params["turn"]
        case method if "id" in message:  # no question is left without an answer: a turn waits for each
            send({"id": message["id"], "error": {"code": -32601, "message": f"{method} is not supported"}})
        case _:
            pass
    return None


def answer(question: dict[str, Any], what: str) -> None:
    reason = question["params"].get("reason")
    print(f"\n{what}\n{reason or ''}\nyes or no? ", end="", flush=True)
    decision = "accept" if sys.stdin.readline().strip() == "yes" else "decline"
    send({"id": question["id"], "result": {"decision": decision}})


request("initialize", {"clientInfo": {"name": "tiny", "version": "1.0"}})
send({"method": "initialized"})
thread = request("thread/start", {"cwd": os.getcwd(), "approvalPolicy": "untrusted"})["thread"]
request("turn/start", {"threadId": thread["id"], "input": [{"type": "text", "text": sys.argv[1]}]})
while not (turn := handle(receive())):
    pass
assert server.stdin
server.stdin.close()  # the server stores the thread, ends its commands, and exits
server.wait()
sys.exit(turn["error"]["message"] if turn["error"] else turn["status"] != "completed")
