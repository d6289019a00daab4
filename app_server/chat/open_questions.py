"""What the server asks while people chat: one question at a time, answered by a key or by a line of text."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from typing import Final

import anyio

from app_server.client.approval_requests import (
    ApprovalReply,
    ApprovalRequest,
    CommandApprovalRequest,
    McpElicitationRequest,
    PatchApprovalRequest,
    PermissionsApprovalRequest,
    UserQuestionsRequest,
)
from protocol.base import Json
from protocol.records import dataclass

KEYS: Final[Mapping[str, str]] = {
    "y": "yes",
    "a": "always in this thread",
    "n": "no",
    "s": "stop and say why",
}


@dataclass(slots=True)
class PendingQuestion:
    """A request that waits for its answer."""

    request: ApprovalRequest
    answered: anyio.Event
    reply: ApprovalReply | None = None
    pressed: str | None = None
    """The key that answered it."""

    @property
    def keys(self) -> tuple[str, ...]:
        """Keys that answer it; without any it takes a line of text."""
        match self.request:
            case CommandApprovalRequest() | PatchApprovalRequest():
                return ("y", "a", "n", "s")
            case PermissionsApprovalRequest():
                return ("y", "a", "n")
            case McpElicitationRequest(schema=schema) if not _asks_for_values(schema):
                return ("y", "n")
            case _:
                return ()

    @property
    def hint(self) -> str:
        """What may be answered, in one line."""
        if self.keys:
            return "  ".join(f"[{key}] {KEYS[key]}" for key in self.keys)
        match self.request:
            case UserQuestionsRequest():
                return "answer in a line; an empty one declines"
            case _:
                return "answer with JSON; an empty line declines"

    def describe(self) -> list[str]:
        """The question as lines, without what the view has shown already."""
        request = self.request
        match request:
            case CommandApprovalRequest():
                lines = [f"Run `{request.command}` in {request.cwd}?"]
            case PatchApprovalRequest():
                files = len(request.changes)
                lines = [f"Apply this patch to {files} file{'s' if files != 1 else ''}?"]
            case PermissionsApprovalRequest():
                lines = ["Give this turn more rights?", request.params.permissions.to_json().decode()]
            case UserQuestionsRequest():
                lines = [f"{question.header}: {question.question}" for question in request.questions]
                lines += [
                    f"  - {each.label}" for question in request.questions for each in question.options or ()
                ]
            case McpElicitationRequest():
                lines = [request.message]
            case _:
                lines = ["The model calls a tool that this client does not have."]
        reason = getattr(request, "reason", None)
        return [*lines, f"Reason: {reason}"] if reason else lines

    def press(self, key: str) -> bool:
        """Whether the key answers it."""
        request = self.request
        if key not in self.keys:
            return False
        match key, request:
            case "y", CommandApprovalRequest() | PatchApprovalRequest() | PermissionsApprovalRequest():
                self.reply = request.accept()
            case "y", McpElicitationRequest():
                self.reply = request.accept({})
            case "a", CommandApprovalRequest() | PatchApprovalRequest() | PermissionsApprovalRequest():
                self.reply = request.accept_for_thread()
            case "s", CommandApprovalRequest() | PatchApprovalRequest():
                self.reply = request.cancel()
            case _:
                self.reply = request.decline()
        self.pressed = key
        self.answered.set()
        return True

    def enter(self, line: str) -> str | None:
        """Answer with a line of text; a complaint where it cannot be one."""
        match self.request:
            case _ if self.keys:
                if not self.press(line.strip().lower()[:1]):
                    return f"expected one of {', '.join(self.keys)}"
            case _ if not line.strip():
                self.decline()
            case UserQuestionsRequest() as asked:
                self.reply = asked.answer({question.id: line.strip() for question in asked.questions})
            case McpElicitationRequest() as asked:
                values, problem = _values(line)
                if problem is not None:
                    return problem
                self.reply = asked.accept(values)
            case _:
                self.decline()
        self.answered.set()
        return None

    def decline(self) -> None:
        self.reply = self.request.decline()
        self.answered.set()


class OpenQuestions:
    """In the order in which they came; the first one is asked."""

    def __init__(self) -> None:
        self._waiting: deque[PendingQuestion] = deque()

    @property
    def current(self) -> PendingQuestion | None:
        return next((each for each in self._waiting if each.reply is None), None)

    async def ask(self, question: PendingQuestion) -> ApprovalReply | None:
        """Wait for the answer. Cancelling this takes the question back."""
        self._waiting.append(question)
        try:
            await question.answered.wait()
            return question.reply
        finally:
            self._waiting.remove(question)


def _asks_for_values(schema: Json) -> bool:
    return isinstance(schema, dict) and bool(schema.get("properties"))


def _values(line: str) -> tuple[Json, str | None]:
    try:
        values = json.loads(line)
    except ValueError as error:
        return None, f"expected JSON: {error}"
    return (values, None) if isinstance(values, dict) else (None, "expected a JSON object")
