"""The JSON that a hook reads on stdin, and that a callback of a client is sent. Pure.

The fields are those that scripts for codex and Claude Code expect.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from app_server_protocol.encoding import Json, json_bytes
from app_server_protocol.engine.hook_events import HookEvent, HookRole
from app_server_protocol.policy import AskForApproval, TurnMode

PLAN: Final = "plan"


class HookTurn(Struct, frozen=True, kw_only=True):
    """The fields that the input of every event has."""

    session_id: str
    turn_id: str | None
    """Id of the turn; None outside of turns."""
    transcript_path: str | None
    """Path of the stored thread; None if it is not stored."""
    cwd: str
    model: str
    permission_mode: str

    def fields(self, event: HookEvent, own: Mapping[str, Json]) -> dict[str, Json]:
        """Return the input of an event. `own` are the fields of this event alone."""
        of_thread = self.turn_id is None or event.has(HookRole.OF_THREAD)
        turn: dict[str, Json] = {} if of_thread else {"turn_id": self.turn_id}
        return {
            "session_id": self.session_id,
            **turn,
            "transcript_path": self.transcript_path,
            "cwd": self.cwd,
            "hook_event_name": event.value,
            "model": self.model,
            "permission_mode": self.permission_mode,
            **own,
        }


def permission_mode(approval: AskForApproval, mode: TurnMode) -> str:
    if mode is TurnMode.PLAN:
        return PLAN
    return "bypassPermissions" if approval is AskForApproval.NEVER else "default"


def input_bytes(fields: Mapping[str, Json]) -> bytes:
    """Return an input as it is written to a hook's stdin."""
    return json_bytes(fields)


# --- the own fields of each event
def session_start(source: str) -> dict[str, Json]:
    """`source`: startup, resume, compact or clear."""
    return {"source": source}


def user_prompt(prompt: str) -> dict[str, Json]:
    return {"prompt": prompt}


def tool_use(name: str, tool_input: Json, call_id: str) -> dict[str, Json]:
    return {"tool_name": name, "tool_input": tool_input, "tool_use_id": call_id}


def permission_request(name: str, tool_input: Json, call_id: str, reason: str | None) -> dict[str, Json]:
    """`reason`: the model's reason, or else that of the question; None if there is none."""
    described = tool_input
    if reason is not None and isinstance(tool_input, dict):
        described = {**tool_input, "description": reason}
    return tool_use(name, described, call_id)


def tool_result(name: str, tool_input: Json, call_id: str, response: Json) -> dict[str, Json]:
    return {**tool_use(name, tool_input, call_id), "tool_response": response}


def stop(*, again: bool, last_message: str | None) -> dict[str, Json]:
    """`again`: a hook has made this turn go on before."""
    return {"stop_hook_active": again, "last_assistant_message": last_message}


def compaction(trigger: str) -> dict[str, Json]:
    """`trigger`: manual or auto."""
    return {"trigger": trigger}


def ending(reason: str) -> dict[str, Json]:
    return {"reason": reason}


def model_response(status: str, usage: Json) -> dict[str, Json]:
    return {"status": status, "usage": usage}
