"""A server that breaks rules on purpose, as a program: `broken_server.py [DELTAS]`.

It answers `initialize` and then sends the notifications of a turn with DELTAS deltas; one more delta comes after the
end of the turn. It answers `wait` once its own request is answered. It writes a line to stderr.
"""

import json
import sys

THREAD, TURN = "thread-1", "turn-1"


def tell(method: str, **params: object) -> None:
    sys.stdout.write(json.dumps({"method": method, "params": {"threadId": THREAD, **params}}) + "\n")


def turn(deltas: int) -> None:
    tell("thread/status/changed", status={"type": "active", "activeFlags": []})
    tell("turn/started", turn={"id": TURN, "items": [], "status": "inProgress", "error": None})
    item = {"type": "agentMessage", "id": "message", "text": ""}
    tell("item/started", turnId=TURN, item=item, startedAtMs=1)
    for number in range(deltas):
        tell("item/agentMessage/delta", turnId=TURN, itemId="message", delta=f"word{number} ")
    tell("item/completed", turnId=TURN, item=item, completedAtMs=1)
    tell("turn/completed", turn={"id": TURN, "items": [], "status": "completed", "error": None})
    tell("item/agentMessage/delta", turnId=TURN, itemId="message", delta="too late")


def main() -> None:
    deltas = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("method") == "initialize":
            sys.stdout.write(json.dumps({"id": message["id"], "result": {"userAgent": "broken"}}) + "\n")
            turn(deltas)
            sys.stderr.write("the model is slow today\n")
        elif message.get("method") == "wait":
            asked = {"id": 0, "method": "item/tool/call", "params": {"threadId": THREAD}}
            sys.stdout.write(json.dumps(asked) + "\n")
        elif "method" not in message:
            sys.stdout.write(json.dumps({"id": 9, "result": {}}) + "\n")
        sys.stdout.flush()
        sys.stderr.flush()


if __name__ == "__main__":
    main()
