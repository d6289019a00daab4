"""Questions of the server during a chat: one question at a time, answered by a line of its own.

A yes is a whole word in a line that was begun after the question had been on the screen for a moment. Text that was
typed for another purpose, before or just then, answers nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from shlex import join
from typing import Final

import anyio
import msgspec
from msgspec import Struct

from app_server.cli.chat import elicitation_form
from app_server.client.approval_requests import (
    ApprovalReply,
    ApprovalRequest,
    CommandApprovalRequest,
    McpElicitationRequest,
    PatchApprovalRequest,
    PermissionsApprovalRequest,
    UserQuestionsRequest,
)
from app_server_protocol.encoding import Json
from app_server_protocol.v2.question import McpServerElicitation, ToolRequestUserInputQuestion, UrlElicitation

KEYS: Final[Mapping[str, str]] = {
    "y": "yes",
    "a": "always in this thread",
    "r": "rule for all threads",
    "n": "no",
    "s": "stop and say why",
    "b": "back to the first value",
}
"""Letters that answer, with their meanings. The first word of a meaning is an answer, too."""

SEEN_AFTER: Final = 0.3
"""Time after which a question on the screen counts as seen, in seconds: a line that was begun earlier is no answer."""

TOO_EARLY: Final = "no answer: this was begun before the question could be read"

Part = tuple[str, str]
"""A label of the chat, and text of others: of a model, a command, a file, an MCP server."""


ALWAYS: Final[Mapping[type[ApprovalRequest], str]] = {
    CommandApprovalRequest: "always this command, in this thread",
    PatchApprovalRequest: "always these files, in this thread",
    McpElicitationRequest: "always this tool, in this thread",
}
"""Scope of an `always`, for the kinds of requests that offer it."""

DECLINES: Final = "/decline"
"""Line that declines a form: any other line may be a value."""


class PendingQuestion(Struct, eq=False):
    """A request that waits for the user's answer."""

    request: ApprovalRequest
    answered: anyio.Event
    folder: str | None = None
    """Folder of the thread. Other folders are named in the question."""
    reply: ApprovalReply | None = None
    shown_at: float | None = None
    """Time when it appeared on the screen. None if it has not appeared yet."""
    said: str = ""
    """The answer in a form that may be shown."""
    _answers: dict[str, str] = msgspec.field(default_factory=dict)
    """Answers to the model's questions so far, by question id."""
    _form: elicitation_form.FormAnswers | None = None

    def __post_init__(self) -> None:
        if isinstance(self.request, McpElicitationRequest) and (
            fields := elicitation_form.form_fields(self.request.schema)
        ):
            self._form = elicitation_form.FormAnswers(fields)

    @property
    def keys(self) -> tuple[str, ...]:
        """The letters that answer it. Without letters it takes a line of text."""
        match self.request:
            case CommandApprovalRequest(proposed_rule=rule):
                return ("y", "a", "r", "n", "s") if rule else ("y", "a", "n", "s")
            case PatchApprovalRequest():
                return ("y", "a", "n", "s")
            case PermissionsApprovalRequest():
                return ("y", "a", "n")
            case McpElicitationRequest(tool_call=call) if call is not None:
                lasting = (("a", call.can_be_remembered), ("r", call.can_be_kept))
                return ("y", *(key for key, is_offered in lasting if is_offered), "n")
            case McpElicitationRequest() if self._form is None:
                return ("y", "n")
            case McpElicitationRequest() if self._form is not None and self._form.current is None:
                return ("y", "n", "b")
            case _:
                return ()

    @property
    def hint(self) -> str:
        """The possible answers, in one line."""
        if self.keys:
            return "  ".join(f"[{key}] {self._meaning(key)}" for key in self.keys)
        match self.request:
            case UserQuestionsRequest():
                return "answer in a line; an empty one declines"
            case McpElicitationRequest() if self._form is not None and (field := self._form.current):
                empty = "takes the default" if field.has_default else "leaves it out"
                optional = "" if field.required and not field.has_default else f"; an empty line {empty}"
                return f"{field.kind}{optional}; {DECLINES} says no to all of it"
            case _:
                return "an empty line declines"

    def parts(self) -> list[Part]:
        """Return the question in parts, the most important first."""
        request = self.request
        match request:
            case CommandApprovalRequest(cwd=cwd, proposed_rule=rule):
                parts = [("Run this command?", request.command)]
                parts += [("in the folder", cwd)] if cwd and cwd != self.folder else []
                parts += (
                    [("A rule would run, without a question, whatever begins with:", join(rule))]
                    if rule
                    else []
                )
            case PatchApprovalRequest():
                files = [f"{change.kind.type} {change.path}" for change in request.changes]
                parts = [("Change these files?", "\n".join(files))]
            case PermissionsApprovalRequest():
                parts = [("Give this turn more rights?", json.dumps(request.params.permissions))]
            case UserQuestionsRequest():
                parts = [("The model asks:", _question_text(each)) for each in self._unanswered()[:1]]
            case McpElicitationRequest(params=asked, tool_call=call) if call is not None:
                parts = [("Call this tool of an MCP server?", f"{asked.server_name}: {call.tool}")]
                parts.append(("with the arguments:", _as_json(call.arguments)))
                parts += [("The server says of it:", call.description)] if call.description else []
            case McpElicitationRequest(params=asked):
                parts = self._asked_by_server(asked)
            case _:
                parts = [("The model calls a tool that this client does not have:", request.tool)]
        reason = getattr(request, "reason", None)
        return [*parts, ("The reason that is given:", reason)] if reason else parts

    def _asked_by_server(self, asked: McpServerElicitation) -> list[Part]:
        message = f"{asked.server_name}: {asked.message}"
        if isinstance(asked, UrlElicitation):
            return [("An MCP server asks whether you visit a page:", asked.url), ("It says:", message)]
        if self._form is None:
            return [("An MCP server asks:", message)]
        if (field := self._form.current) is None:
            return [("Send these values to an MCP server?", self._form.summary()), ("It asked:", message)]
        place = f"{self._form.number} of {len(self._form.fields)}"
        what = f"An MCP server asks for value {place} ({'required' if field.required else 'optional'}):"
        return [(what, field.description()), ("It says:", message)]

    def seen_by(self, begun: float) -> bool:
        """Return whether a line that was begun at the time `begun` can be an answer to this question."""
        return self.shown_at is not None and begun - self.shown_at >= SEEN_AFTER

    def enter(self, line: str) -> str | None:
        """Answer with a line of text. Return a complaint if the line is no answer; otherwise None."""
        text = line.strip()
        match self.request:
            case _ if self.keys:
                return self._choose(text)
            case McpElicitationRequest() if self._form is not None and text != DECLINES:
                try:
                    self._form.enter(text)
                except elicitation_form.InvalidAnswer as problem:
                    return f"no answer: {problem}"
                self.shown_at = None  # the next part has to be read, too
            case UserQuestionsRequest() as asked if text:
                self._answers |= {question.id: _option(text, question) for question in self._unanswered()[:1]}
                if self._unanswered():
                    self.shown_at = None
                    return None
                secret = any(question.is_secret for question in asked.questions)
                self._settle(asked.answer(self._answers), "(a secret)" if secret else text)
            case _:
                self.decline()
        return None

    def decline(self) -> None:
        self._settle(self.request.decline(), "no")

    def _choose(self, word: str) -> str | None:
        """Answer with a letter or a word. Return a complaint if it is no answer; otherwise None."""
        request = self.request
        key = next((key for key in self.keys if word.lower() in (key, _word(key))), None)
        match key, request:
            case None, _:
                return f"no answer: expected {', '.join(f'{key} or {_word(key)}' for key in self.keys)}"
            case "b", _ if self._form is not None:
                self._form.begin_again()
                self.shown_at = None
                return None
            case "y", CommandApprovalRequest() | PatchApprovalRequest() | PermissionsApprovalRequest():
                reply = request.accept()
            case "y", McpElicitationRequest():
                reply = request.accept({} if self._form is None else self._form.values)
            case (
                "a",
                CommandApprovalRequest()
                | PatchApprovalRequest()
                | PermissionsApprovalRequest()
                | McpElicitationRequest(),
            ):
                reply = request.accept_for_thread()
            case "r", CommandApprovalRequest():
                reply = request.accept_with_rule()
            case "r", McpElicitationRequest():
                reply = request.accept_always()
            case "s", CommandApprovalRequest() | PatchApprovalRequest():
                reply = request.cancel()
            case _:
                reply = request.decline()
        self._settle(reply, self._meaning(key))
        return None

    def _meaning(self, key: str) -> str:
        """Return the meaning of a letter for this request."""
        if key == "r" and isinstance(self.request, McpElicitationRequest):
            return "rule: always this tool, in all threads"
        return ALWAYS.get(type(self.request), KEYS[key]) if key == "a" else KEYS[key]

    def _settle(self, reply: ApprovalReply, said: str) -> None:
        self.reply, self.said = reply, said
        self.answered.set()

    def _unanswered(self) -> Sequence[ToolRequestUserInputQuestion]:
        questions = self.request.questions if isinstance(self.request, UserQuestionsRequest) else ()
        return [each for each in questions if each.id not in self._answers]


class OpenQuestions:
    """Asks one question at a time, in order of arrival: an answer belongs to the question that was shown last."""

    def __init__(self) -> None:
        self._one = anyio.Lock()
        self._asked: PendingQuestion | None = None

    @property
    def current(self) -> PendingQuestion | None:
        """The question that waits for its answer. None if there is none."""
        return self._asked if self._asked is not None and self._asked.reply is None else None

    async def ask(
        self, question: PendingQuestion, show: Callable[[PendingQuestion], None]
    ) -> ApprovalReply | None:
        """Show the question in its turn, and wait for the answer. Cancelling the call withdraws the question."""
        async with self._one:
            self._asked = question
            try:
                show(question)
                await question.answered.wait()
                return question.reply
            finally:
                self._asked = None


def _word(key: str) -> str:
    return KEYS[key].split()[0]


def _question_text(question: ToolRequestUserInputQuestion) -> str:
    options = [f"{n}) {each.label}: {each.description}" for n, each in enumerate(question.options or (), 1)]
    return "\n".join([f"{question.header}: {question.question}", *options])


def _option(text: str, question: ToolRequestUserInputQuestion) -> str:
    """Return the option whose number was typed, or else the text itself."""
    labels = {str(number): each.label for number, each in enumerate(question.options or (), 1)}
    return labels.get(text, text)


def _as_json(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False)
