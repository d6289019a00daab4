"""Two views of what happened, as short lines: what the client saw, and what the model saw.

Ids, paths and durations are replaced, prompts and schemas left out: the lines are for people, and for comparing.
"""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from protocol.structs import Json
from tests.support.client import Logged
from tests.support.scripted_model import ModelRequest

LONGEST = 160
UUID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")
WORDS = {
    "agent_message": "message",
    "agent_message_delta": "delta",
    "user_message": "message",
    "agent_reasoning": "text",
    "task_complete": "last_agent_message",
    "turn_aborted": "reason",
    "error": "message",
    "warning": "message",
    "stream_error": "message",
    "background_event": "message",
    "exec_command_begin": "command",
    "exec_approval_request": "command",
    "exec_command_end": "exit_code",
    "undo_completed": "message",
}
"""What is worth telling of an event."""

LEFT_OUT = ("item_started", "item_completed", "agent_message_content_delta", "token_count")
"""Events that say again what others say, or fall anywhere."""


def client_lines(log: Sequence[Logged], root: Path) -> list[str]:
    methods = {
        json.dumps(e.message["id"]): e.message["method"]
        for e in log
        if e.sent and "method" in e.message and "id" in e.message
    }
    return [_short(line, root) for entry in log if (line := _line(entry, methods))]


def _line(entry: Logged, methods: dict[str, str]) -> str | None:
    message = entry.message
    arrow = ">" if entry.sent else "<"
    if not isinstance(message, dict):
        return f"{arrow} {message}"
    if "method" not in message:
        if entry.sent:
            return f"> answers {_json(message.get('result', message.get('error')))}"
        method = methods.get(json.dumps(message["id"]), "?")
        said = f"error {message['error']['message']}" if "error" in message else "ok"
        return f"< {method}: {said}"
    method, params = message["method"], message.get("params") or {}
    if method.startswith("codex/event/"):
        event = params["msg"]
        if event["type"] in LEFT_OUT:
            return None
        told = event.get(WORDS.get(event["type"], ""))
        return f"< [{params['id']}] {event['type']}" + ("" if told is None else f" {_json(told)}")
    return f"{arrow} {method}" + ("?" if not entry.sent and "id" in message else "")


def model_lines(requests: Sequence[ModelRequest], root: Path) -> list[str]:
    return [_short(line, root) for n, request in enumerate(requests) for line in _request(n, request)]


def _request(n: int, request: ModelRequest) -> Iterator[str]:
    yield f"request {n + 1}: {request.body['model']}"
    for item in request.input:
        match item["type"]:
            case "message":
                yield f"  {item['role']}: {_content(item['content'])}"
            case "function_call":
                yield f"  call {item['call_id']}: {item['name']} {item['arguments']}"
            case "function_call_output" | "custom_tool_call_output":
                yield f"  output {item['call_id']}: {item['output']}"
            case kind:
                yield f"  {kind}"


def _content(content: Sequence[Json]) -> str:
    text = "".join(part.get("text", f"<{part['type']}>") for part in content)
    for tag in ("environment_context", "user_instructions"):
        if text.startswith(f"<{tag}>"):
            return f"<{tag}>"
    return text


def _json(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False)


def _short(line: str, root: Path) -> str:
    line = UUID.sub("<uuid>", line.replace(str(root), "<root>"))
    line = re.sub(r'duration_seconds": ?[\d.]+', 'duration_seconds":<n>', line.replace("\\", ""))
    line = line.replace("\n", "\\n")
    return line if len(line) <= LONGEST else line[:LONGEST] + "…"
