"""One turn from an editor's view: shows each event, responds to approval requests, and records both.

`expectations` checks the record.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field

import anyio

from app_server.demo.client import Client, ClientError, ServerMessage
from app_server.demo.person import Person
from app_server.demo.screen import Screen
from protocol.base import Json
from protocol.records import dataclass
from protocol.v1.methods import APPLY_PATCH_APPROVAL, EVENT_PREFIX, EXEC_COMMAND_APPROVAL

LIMIT = 60.0
"""Seconds that a turn may take between two approvals; the person may take longer."""


@dataclass(slots=True)
class PlayedTurn:
    """What happened in a turn."""

    deltas: list[str] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)
    asked: dict[str, Json] = field(default_factory=dict)
    """The approval requests by call."""
    approved: dict[str, bool] = field(default_factory=dict)
    commands: dict[str, Json] = field(default_factory=dict)
    """How commands ended, by call."""
    patches: dict[str, bool] = field(default_factory=dict)
    """Whether patches succeeded, by call."""
    diff: str = ""
    usage: Json = None
    last_message: str | None = None


Before = Callable[[ServerMessage], None]
"""Called while an approval request is open."""


@dataclass(slots=True)
class TurnRecorder:
    """Records one turn until its end."""

    client: Client
    screen: Screen
    person: Person
    before_answer: Before
    seen: PlayedTurn = field(default_factory=PlayedTurn)

    async def record(self) -> PlayedTurn:
        """Raises ClientError if the turn fails, is aborted or takes too long."""
        try:
            with anyio.fail_after(LIMIT) as limit:
                while True:
                    heard = await self.client.receive()
                    if heard.id is not None:
                        await self._answer(heard)
                        limit.deadline = anyio.current_time() + LIMIT
                    elif heard.method.startswith(EVENT_PREFIX) and self._ends(heard.params["msg"]):
                        return self.seen
        except TimeoutError:
            raise ClientError(f"the turn did not end within {LIMIT:g} s") from None

    async def _answer(self, question: ServerMessage) -> None:
        params = question.params
        if question.method == EXEC_COMMAND_APPROVAL.method:
            text = "May this command run?"
        elif question.method == APPLY_PATCH_APPROVAL.method:
            for path, change in params["fileChanges"].items():
                self.screen.note("patch", path)
                self.screen.diff(change.get("update", {}).get("unified_diff", ""))
            text = "May this change be made?"
        else:
            raise ClientError(f"the server sent {question.method}, which the demo does not support")
        self.before_answer(question)
        yes = await self.person.decide(text)
        self.seen.asked[params["callId"]], self.seen.approved[params["callId"]] = params, yes
        await self.client.respond(question, {"decision": "approved" if yes else "denied"})

    def _ends(self, event: Json) -> bool:
        """Record an event. Returns whether it is the last of the turn."""
        seen, screen = self.seen, self.screen
        match event["type"]:
            case "agent_message_delta":
                seen.deltas.append(event["delta"])
                screen.word(event["delta"])
            case "agent_message":
                seen.messages.append(event["message"])
            case "exec_command_begin":
                screen.command(event["command"])
            case "exec_command_end":
                seen.commands[event["call_id"]] = event
                screen.output(event["aggregated_output"], _ending(event["exit_code"]))
            case "patch_apply_end":
                seen.patches[event["call_id"]] = event["success"]
                screen.output(
                    event["stdout"] or event["stderr"], "applied" if event["success"] else "not applied"
                )
            case "turn_diff":
                seen.diff = event["unified_diff"]
            case "token_count":
                seen.usage = event["info"]
            case "warning" | "stream_error":
                screen.warning(event["message"])
            case "error":
                raise ClientError(f"the turn failed: {event['message']}")
            case "turn_aborted":
                raise ClientError(f"the turn was aborted: {event['reason']}")
            case "task_complete":
                seen.last_message = event["last_agent_message"]
                return True
            case _:
                pass
        return False


def _ending(exit_code: int) -> str:
    return "was not run" if exit_code == -1 else f"exit code {exit_code}"
