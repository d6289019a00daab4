"""What the server asks while people chat: one question at a time, answered by a line of its own.

A yes is a whole word in a line that was begun after the question had been on the screen for a moment: what was typed
for something else, before or just then, answers nothing. The form by which an MCP server asks for values is JSON of
others: whatever is not as the protocol prescribes is left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import anyio
import msgspec
from msgspec import Struct

from app_server.client.approval_requests import (
    ApprovalReply,
    ApprovalRequest,
    CommandApprovalRequest,
    McpElicitationRequest,
    PatchApprovalRequest,
    PermissionsApprovalRequest,
    UserQuestionsRequest,
)
from protocol.structs import Json
from protocol.v2.question import ToolRequestUserInputQuestion, UrlElicitation

TYPES: Final[dict[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
}


def asked_fields(schema: Json) -> list[str]:
    """Describe each field in a line: name, kind, whether it is required, what it is for, what it may be."""
    required = _required(schema)
    return [_line(name, field, name in required) for name, field in _fields(schema).items()]


def form_problem(schema: Json, values: Json) -> str | None:
    """Return why the values are no answer; None where they are one."""
    missing = [name for name in _required(schema) if values.get(name) is None]
    if missing:
        return f"required, and not given: {', '.join(missing)}"
    for name, value in values.items():
        field = _fields(schema).get(name, {})
        kinds = TYPES.get(str(field.get("type")))
        if kinds is not None and (
            not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds)
        ):
            return f"{name}: expected a value of type {field['type']}"
        choices = _choices(field)
        given = value if isinstance(value, list) else [value]
        if choices and not all(each in choices for each in given):
            return f"{name}: expected one of {_words(choices)}"
    return None


def _line(name: str, field: Json, required: bool) -> str:
    kind = f"{field.get('type') or 'any value'}, {'required' if required else 'optional'}"
    texts = [str(field[key]) for key in ("title", "description") if field.get(key)]
    if choices := _choices(field):
        texts.append(f"one of {_words(choices)}")
    if field.get("default") is not None:
        texts.append(f"otherwise {json.dumps(field['default'], ensure_ascii=False)}")
    return f"{name} ({kind})" + (f": {'; '.join(texts)}" if texts else "")


def _fields(schema: Json) -> dict[str, Json]:
    fields = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(fields, dict):
        return {}
    return {name: field if isinstance(field, dict) else {} for name, field in fields.items()}


def _required(schema: Json) -> list[str]:
    names = schema.get("required") if isinstance(schema, dict) else None
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def _choices(field: Json) -> list[Json]:
    """List what a field may be, or each part of one that takes several; nothing: it may be anything."""
    items = field.get("items")
    for place in (field, items if isinstance(items, dict) else {}):
        if isinstance(place.get("enum"), list):
            return list(place["enum"])
        for key in ("oneOf", "anyOf"):
            if isinstance(place.get(key), list):
                return [each["const"] for each in place[key] if isinstance(each, dict) and "const" in each]
    return []


def _words(choices: list[Json]) -> str:
    return ", ".join(json.dumps(each, ensure_ascii=False) for each in choices)


KEYS: Final[Mapping[str, str]] = {
    "y": "yes",
    "a": "always in this thread",
    "n": "no",
    "s": "stop and say why",
}
"""Letters that answer; so does the first word of what each one means."""

SEEN_AFTER: Final = 0.3
"""Seconds after which a question on the screen was seen: a line that was begun before is no answer."""

TOO_EARLY: Final = "no answer: this was begun before the question could be read"

Part = tuple[str, str]
"""Words of the chat, and what others say: a model, a command, a file, an MCP server."""


class PendingQuestion(Struct, eq=False):
    """A request that waits for its answer."""

    request: ApprovalRequest
    answered: anyio.Event
    reply: ApprovalReply | None = None
    shown_at: float | None = None
    """When it appeared on the screen; None: not yet."""
    said: str = ""
    """What it was answered with, in words that may be shown."""
    _answers: dict[str, str] = msgspec.field(default_factory=dict)
    """To the questions of the model so far."""

    @property
    def keys(self) -> tuple[str, ...]:
        """List the letters that answer it; without any it takes a line of text."""
        match self.request:
            case CommandApprovalRequest() | PatchApprovalRequest():
                return ("y", "a", "n", "s")
            case PermissionsApprovalRequest():
                return ("y", "a", "n")
            case McpElicitationRequest(schema=schema) if not asked_fields(schema):
                return ("y", "n")
            case _:
                return ()

    @property
    def hint(self) -> str:
        """Say in one line what may be answered."""
        if self.keys:
            return "  ".join(f"[{key}] {KEYS[key]}" for key in self.keys)
        match self.request:
            case UserQuestionsRequest():
                return "answer in a line; an empty one declines"
            case McpElicitationRequest():
                return "answer with a JSON object; an empty line declines"
            case _:
                return "an empty line declines"

    def parts(self) -> list[Part]:
        """Return the question in parts, the most important first."""
        request = self.request
        match request:
            case CommandApprovalRequest():
                parts = [("Run this command?", request.command)]
                parts += [("in the folder", request.cwd)] if request.cwd else []
            case PatchApprovalRequest():
                files = [f"{change.kind.type} {change.path}" for change in request.changes]
                parts = [("Change these files?", "\n".join(files))]
            case PermissionsApprovalRequest():
                parts = [("Give this turn more rights?", json.dumps(request.params.permissions))]
            case UserQuestionsRequest():
                parts = [("The model asks:", _question_text(each)) for each in self._unanswered()[:1]]
            case McpElicitationRequest(params=UrlElicitation(url=url) as asked):
                message = f"{asked.server_name}: {asked.message}"
                parts = [("An MCP server asks whether you visit a page:", url), ("It says:", message)]
            case McpElicitationRequest(schema=schema, params=asked):
                parts = [("An MCP server asks:", f"{asked.server_name}: {asked.message}")]
                if fields := asked_fields(schema):
                    parts.append(("for these values:", "\n".join(fields)))
            case _:
                parts = [("The model calls a tool that this client does not have:", request.tool)]
        reason = getattr(request, "reason", None)
        return [*parts, ("The reason that is given:", reason)] if reason else parts

    def seen_by(self, begun: float) -> bool:
        """Check that a line that was begun at that time can be meant as its answer."""
        return self.shown_at is not None and begun - self.shown_at >= SEEN_AFTER

    def enter(self, line: str) -> str | None:
        """Answer with a line of text; a complaint where it cannot be one."""
        text = line.strip()
        match self.request:
            case _ if self.keys:
                return self._choose(text)
            case _ if not text:
                self.decline()
            case UserQuestionsRequest() as asked:
                self._answers |= {question.id: text for question in self._unanswered()[:1]}
                if self._unanswered():
                    self.shown_at = None  # the next one has to be read, too
                    return None
                secret = any(question.is_secret for question in asked.questions)
                self._settle(asked.answer(self._answers), "(a secret)" if secret else text)
            case McpElicitationRequest(schema=schema) as asked:
                values, problem = _values(text)
                problem = problem or form_problem(schema, values)
                if problem is not None:
                    return problem
                self._settle(asked.accept(values), text)
            case _:
                self.decline()
        return None

    def decline(self) -> None:
        self._settle(self.request.decline(), "no")

    def _choose(self, word: str) -> str | None:
        """Answer with a letter or a word."""
        request = self.request
        key = next((key for key in self.keys if word.lower() in (key, _word(key))), None)
        match key, request:
            case None, _:
                return f"no answer: expected {', '.join(f'{key} or {_word(key)}' for key in self.keys)}"
            case "y", CommandApprovalRequest() | PatchApprovalRequest() | PermissionsApprovalRequest():
                reply = request.accept()
            case "y", McpElicitationRequest():
                reply = request.accept({})
            case "a", CommandApprovalRequest() | PatchApprovalRequest() | PermissionsApprovalRequest():
                reply = request.accept_for_thread()
            case "s", CommandApprovalRequest() | PatchApprovalRequest():
                reply = request.cancel()
            case _:
                reply = request.decline()
        self._settle(reply, KEYS[key])
        return None

    def _settle(self, reply: ApprovalReply, said: str) -> None:
        self.reply, self.said = reply, said
        self.answered.set()

    def _unanswered(self) -> Sequence[ToolRequestUserInputQuestion]:
        questions = self.request.questions if isinstance(self.request, UserQuestionsRequest) else ()
        return [each for each in questions if each.id not in self._answers]


class OpenQuestions:
    """Asks one question at a time, in the order in which they came: an answer is for what was shown last."""

    def __init__(self) -> None:
        self._one = anyio.Lock()
        self._asked: PendingQuestion | None = None

    @property
    def current(self) -> PendingQuestion | None:
        """Return the question that waits for its answer."""
        return self._asked if self._asked is not None and self._asked.reply is None else None

    async def ask(
        self, question: PendingQuestion, show: Callable[[PendingQuestion], None]
    ) -> ApprovalReply | None:
        """Show it once it has its turn, and wait for the answer. Cancelling this takes the question back."""
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
    options = [f"- {option.label}: {option.description}" for option in question.options or ()]
    return "\n".join([f"{question.header}: {question.question}", *options])


def _values(line: str) -> tuple[Json, str | None]:
    try:
        values = json.loads(line)
    except (ValueError, RecursionError) as error:
        return None, f"expected JSON: {error}"
    return (values, None) if isinstance(values, dict) else (None, "expected a JSON object")
