"""Recorded conversations as sequence diagrams (Mermaid), and the documents that contain them.

A diagram shows the requests, answers and notifications in their order, by method, with the details that tell one from
another. Notifications that may come at any time are left out, so that a diagram is the same in every recording.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from app_server_protocol.encoding import Json
from tests.support.client import Logged

ROOT = Path(__file__).parent.parent.parent

AT_ANY_TIME = frozenset(
    {
        "account/rateLimits/updated",
        "codex/event/background_event",
        "codex/event/mcp_startup_complete",
        "codex/event/token_count",
        "configWarning",
        "thread/status/changed",
        "thread/tokenUsage/updated",
    }
)
_EVENT = "codex/event/"


def diagram(log: Sequence[Logged]) -> str:
    """Return the messages of `log` as the lines of a Mermaid diagram."""
    lines = ["participant C as Client", "participant S as app-server", *_folded(_lines(log))]
    return "\n    ".join(("sequenceDiagram", *lines)) + "\n"


def _lines(log: Sequence[Logged]) -> Iterator[str]:
    asked: dict[tuple[bool, Json], str] = {}
    """Methods of the requests, by sender and id."""
    for entry in log:
        message = entry.message
        here, there = ("C", "S") if entry.sent else ("S", "C")
        method = message.get("method")
        if method is None:
            of = asked.pop((not entry.sent, message["id"]))
            yield f"{here}-->>{there}: {_result(of, message)}"
        elif "id" in message:
            asked[entry.sent, message["id"]] = method
            yield f"{here}->>{there}: {method}{_detail(message.get('params'))}"
        elif method not in AT_ANY_TIME:
            yield f"{here}-){there}: {method}{_detail(message.get('params'))}"


def _folded(lines: Iterator[str]) -> Iterator[str]:
    """Yield the lines, with repeated deltas shown once, also if several kinds alternate."""
    deltas: set[str] = set()
    for line in lines:
        if not line.lower().endswith("delta"):
            deltas.clear()
        elif line in deltas:
            continue
        else:
            deltas.add(line)
        yield line


def _detail(params: Json) -> str:
    """Return the detail that tells a message from others of its method."""
    match params:
        case {"item": {"type": str(kind)}}:
            return f" ({kind})"
        case {"turn": {"status": str(status)}}:
            return f" ({status})"
        case {"input": [{"text": str(words)}, *_]}:
            return f" “{words}”"
        case {"items": [{"data": {"text": str(words)}}, *_]}:
            return f" “{words}”"
        case {"msg": {"type": "item_started" | "item_completed", "item": dict(item)}}:
            return f" ({next(iter(item))})"
        case _:
            return ""


def _result(method: str, message: Json) -> str:
    match message:
        case {"error": {"message": str(text)}}:
            return f"error: {text}"
        case {"result": {"decision": str(decision)}}:
            return decision
        case {"result": {"thread": {"turns": [_, *_]}}}:
            return f"result of {method}, with its turns"
        case _:
            return f"result of {method}"


# --- documents -----------------------------------------------------------------------------------------
def shown(document: Path, name: str) -> str:
    """Return the diagram of that name in a document. Raises KeyError."""
    found = _place(name).search(document.read_text(encoding="utf-8"))
    if found is None:
        raise KeyError(f"{document} has no place for {name}")
    return found[2]


def show(document: Path, name: str, text: str) -> None:
    """Replace the diagram of that name in a document."""

    def replaced(found: re.Match[str]) -> str:
        return found[1] + text + found[3]

    before = document.read_text(encoding="utf-8")
    document.write_text(_place(name).sub(replaced, before), encoding="utf-8")


def _place(name: str) -> re.Pattern[str]:
    mark = rf"<!-- recorded: {re.escape(name)} -->\n(?:<!-- [^\n]* -->\n)?"
    return re.compile(rf"({mark}```mermaid\n)(.*?)(```\n)", re.DOTALL)
