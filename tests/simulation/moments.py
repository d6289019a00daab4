"""Moments at which a person acts: after some time, after a number of messages, or at a sign that the person is shown.

A server breaks most easily at the edges of what it does: a turn begins, a command ends, a reply is complete.
"""

from dataclasses import dataclass

from app_server_protocol.encoding import Json

WORK = ("commandExecution", "fileChange", "mcpToolCall")

SIGNS = {
    "turn/started": "begin",
    "task_started": "begin",
    "item/agentMessage/delta": "text",
    "agent_message_delta": "text",
    "agent_message_chunk": "text",
    **{f"item/started {kind}": "work" for kind in WORK},
    "exec_command_begin": "work",
    "patch_apply_begin": "work",
    "tool_call": "work",
    **{f"item/completed {kind}": "done" for kind in WORK},
    "exec_command_end": "done",
    "patch_apply_end": "done",
    "tool_call_update": "done",
    "thread/tokenUsage/updated": "reply",
    "token_count": "reply",
    "item/started contextCompaction": "compaction",
}
"""Signs that people wait for, by the messages of all APIs that show them."""


def sign_of(message: Json) -> str | None:
    """Return the sign that a message of the server shows. None if it shows nothing that people wait for."""
    if "method" not in message:
        return None
    if "id" in message:
        return "question"
    params = message.get("params") or {}
    kind = message["method"]
    if kind.startswith("codex/event/"):
        kind = params["msg"]["type"]
    elif "update" in params:
        kind = params["update"]["sessionUpdate"]
    elif "item" in params:
        kind = f"{kind} {params['item']['type']}"
    return SIGNS.get(kind)


@dataclass(frozen=True, slots=True)
class Moment:
    """The first of three conditions: a time, a number of messages, a sign. A sign may be followed by a delay."""

    seconds: float
    messages: int = 0
    sign: str | None = None
    later: float = 0.0

    def __repr__(self) -> str:
        if self.sign is not None:
            return f"{self.sign} + {self.later} s"
        return f"{self.messages} messages" if self.messages else f"{self.seconds} s"


ALL_SIGNS = sorted({*SIGNS.values(), "question", "thread"})
"""All signs. The last one, `thread`, is not visible to people: something runs in a thread, and the server waits for it.
"""

MOMENTS = (
    *(Moment(seconds) for seconds in (0.0, 0.005, 0.15, 0.4, 1.2, 3.5)),
    *(Moment(4.0, messages) for messages in (1, 2, 3, 5, 8)),
    *(Moment(30.0, sign=sign) for sign in ALL_SIGNS),
)
"""Moments before a deed in a turn. The times are about as long as the parts of a turn."""


def edges(*signs: str) -> tuple[Moment, ...]:
    """Return the moments at these signs and shortly after them, while something else happens."""
    return tuple(Moment(30.0, sign=sign, later=later) for sign in signs for later in (0.0, 0.004, 0.3))
