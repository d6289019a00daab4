"""What holds for every connection that speaks the Agent Client Protocol, independent of the scenario."""

from __future__ import annotations

import json
import os.path
from collections.abc import Iterator
from dataclasses import dataclass, field

from protocol.base import Json
from tests.support.client import Client, Logged

AT_ANY_TIME = frozenset(
    {
        "available_commands_update",
        "current_mode_update",
        "config_option_update",
        "session_info_update",
        "usage_update",
        "notice",
    }
)
"""Updates that need no prompt to be running."""
ORDER = {"pending": 0, "in_progress": 1, "completed": 2, "failed": 2}
OVER = frozenset({"completed", "failed"})


@dataclass
class Seen:
    """What is known at one place of a log."""

    asked: dict[str, Json] = field(default_factory=dict)
    """Requests of the client that are not answered, by their ids as JSON."""
    sessions: set[str] = field(default_factory=set)
    calls: dict[tuple[str, str], str] = field(default_factory=dict)
    cancelled: set[str] = field(default_factory=set)

    def running(self, method: str, session: str) -> bool:
        return any(
            each["method"] == method and each["params"].get("sessionId") == session
            for each in self.asked.values()
        )


def violated_session_invariants(client: Client) -> list[str]:
    broken = [f"a line of stdout is no message: {line[:100]!r}" for line in client.garbage]
    seen = Seen()
    for entry in client.log:
        broken += [f"{problem}: {json.dumps(entry.message)[:300]}" for problem in _problems(seen, entry)]
    if not client.left_early:
        broken += [f"{each['method']} was not answered" for each in seen.asked.values()]
    return broken


def _problems(seen: Seen, entry: Logged) -> Iterator[str]:
    message = entry.message
    if not isinstance(message, dict):
        return
    if entry.sent:
        _sent(seen, message)
        return
    if message.get("jsonrpc") != "2.0":
        yield "without the version of JSON-RPC"
    if "method" not in message:
        yield from _answer(seen, message)
        return
    params = message.get("params")
    session = params.get("sessionId") if isinstance(params, dict) else None
    if session is not None and session not in seen.sessions:
        yield "names a session that no answer has named"
    if message["method"] == "session/update":
        yield from _update(seen, session or "", message["params"]["update"])
    if message["method"] == "session/request_permission":
        call = message["params"]["toolCall"]
        if (session, call["toolCallId"]) not in seen.calls:
            yield "asks about a call that was not announced"
        ids = [option["optionId"] for option in message["params"]["options"]]
        if len(set(ids)) < len(ids) or not ids:
            yield "offers an option twice, or none"


def _sent(seen: Seen, message: Json) -> None:
    params = message.get("params")
    session = params.get("sessionId") if isinstance(params, dict) else None
    if "method" in message and "id" in message:
        seen.asked[json.dumps(message["id"])] = {
            **message,
            "params": params if isinstance(params, dict) else {},
        }
        if message["method"] in ("session/load", "session/resume") and isinstance(session, str):
            seen.sessions.add(session)
            seen.calls = {key: status for key, status in seen.calls.items() if key[0] != session}
        if message["method"] == "session/prompt":
            seen.cancelled.discard(session or "")
    elif message.get("method") in ("session/cancel", "$/cancel_request"):
        seen.cancelled.add(session or "")


def _answer(seen: Seen, message: Json) -> Iterator[str]:
    if ("result" in message) == ("error" in message):
        yield "an answer with both a result and an error, or neither"
    asked = seen.asked.pop(json.dumps(message.get("id")), None)
    if asked is None:
        if "error" not in message:
            yield "an answer to no request"
        return
    result = message.get("result")
    if isinstance(result, dict):
        seen.sessions.add(result.get("sessionId") or "")
        yield from _offered(result)
    if asked["method"] == "session/prompt":
        session = asked["params"].get("sessionId")
        left = [id for (of, id), status in seen.calls.items() if of == session and status not in OVER]
        if left and not seen.running("session/prompt", session):
            yield f"calls {left} are open when the turn is over"


def _update(seen: Seen, session: str, update: Json) -> Iterator[str]:
    kind = update["sessionUpdate"]
    loading = seen.running("session/load", session)
    if kind not in AT_ANY_TIME and not loading and not seen.running("session/prompt", session):
        yield f"{kind} while no prompt is running"
    yield from _offered(update)
    if kind not in ("tool_call", "tool_call_update"):
        return
    key, status = (session, update["toolCallId"]), update.get("status")
    before = seen.calls.get(key)
    if kind == "tool_call" and before is not None:
        yield "a call is announced twice"
    if kind == "tool_call_update" and before is None:
        yield "a call changes before it was announced"
    if (
        status is not None
        and before is not None
        and (ORDER[status] < ORDER[before] or (before in OVER and status != before))
    ):
        yield f"a call goes from {before} to {status}"
    seen.calls[key] = status or before or "pending"
    places = [*(update.get("locations") or []), *(update.get("content") or [])]
    if any("path" in each and not os.path.isabs(each["path"]) for each in places):
        yield "a path is not absolute"


def _offered(said: Json) -> Iterator[str]:
    modes = said.get("modes")
    if modes and modes["currentModeId"] not in [each["id"] for each in modes["availableModes"]]:
        yield "the current mode is not offered"
    for option in said.get("configOptions") or ():
        if option["currentValue"] not in [each["value"] for each in option["options"]]:
            yield f"the value of {option['id']} is not offered"
