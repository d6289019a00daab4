"""Lessons from a refused request: the request is sent again in another form, and so is every later one. Pure.

A provider that refuses a field, a role, a form of ids or of schemas says so with a status 400 or 422. A lesson is a
change of the quirks, or that thoughts or images of the history are not sent any more.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from app_server.engine.model.api_failures import error_object, words_of
from app_server.engine.model.event_json import mapping, text_of
from app_server.engine.model.quirks import Quirks
from app_server.engine.model.schema_forms import DROPPED
from app_server_protocol.encoding import Json

READ: Final = 4000
"""Length of the part of a refusal that is read, in characters."""


class Lesson(Struct, frozen=True):
    """A change after which a provider may accept the request."""

    quirks: Mapping[str, Json] = {}
    forgets_thoughts: bool = False
    hides_images: bool = False

    def __str__(self) -> str:
        if self.forgets_thoughts:
            return "earlier thoughts are not sent back"
        return "images are not sent" if self.hides_images else repr(dict(self.quirks))


def lesson_of(status: int, body: str, request: bytes, quirks: Quirks) -> Lesson | None:
    """Return the lesson of a refusal; None if there is none. `request` is the body that was refused."""
    if status not in (400, 404, 422, 500):
        return None
    error = error_object(body.encode("utf-8", "replace"))
    param = text_of(error.get("param")) or _place(error.get("detail"))
    text = f"{words_of(error, body)} {error.get('code') or ''} {param}"[:READ]
    if status == 404:
        return _images(text)
    if status == 500:
        # Local servers answer like this if the template of the model refuses the messages.
        return _form(text) if re.search(r"(?i)template|jinja", text) else None
    for read in (_missing_thoughts, _thoughts, _images, _form):
        lesson = read(text)
        if lesson is not None and _changes(lesson, quirks):
            return lesson
    field = _field(text, param, request, quirks)
    return None if field is None else Lesson(field)


def _place(detail: Json) -> str:
    """Return the field that a list of validation errors names, in the form of FastAPI servers: `[{"loc": [...]}]`."""
    first = mapping(detail[0]) if isinstance(detail, list) and detail else {}
    places = first.get("loc")
    return ".".join(str(each) for each in places if each != "body") if isinstance(places, list) else ""


def _changes(lesson: Lesson, quirks: Quirks) -> bool:
    if lesson.forgets_thoughts or lesson.hides_images:
        return True
    return any(getattr(quirks, name) != value for name, value in lesson.quirks.items())


_THOUGHTS: Final = (
    r"(?i)invalid_encrypted_content|encrypted content|thought_signature|`?signature`? in `?thinking`?"
    r"|reasoning_content.{0,40}must be passed|bound to a different conversation|item with id .{0,80}not found"
)
_IMAGES: Final = (
    r"(?i)\b(?:image|images|image_url|picture|vision)\b.{0,120}"
    r"(?:unsupported|not supported|invalid|could not|too large|not support|exceeds)"
    r"|(?:unsupported|invalid|could not|too large|does not support|that support|unknown variant).{0,120}"
    r"\b(?:image|images|image_url)\b"
)


_MISSING_THOUGHTS: Final = (
    r"(?i)reasoning_content.{0,40}(?:must be passed|is missing|is required)|missing.{0,40}reasoning_content"
)


def _missing_thoughts(text: str) -> Lesson | None:
    """Return the lesson of a provider that requires thoughts with each message of the assistant, as DeepSeek does."""
    if not re.search(_MISSING_THOUGHTS, text):
        return None
    return Lesson({"thoughts_field": "reasoning_content", "empty_thoughts": True})


def _thoughts(text: str) -> Lesson | None:
    return Lesson(forgets_thoughts=True) if re.search(_THOUGHTS, text) else None


def _images(text: str) -> Lesson | None:
    return Lesson(hides_images=True) if re.search(_IMAGES, text) else None


FORMS: Final[tuple[tuple[str, Mapping[str, Json]], ...]] = (
    (
        r"(?i)tools? with reasoning_effort.{0,40}not supported|not supported.{0,80}use /?v1/responses",
        {"responses_only": True},
    ),
    (r"reasoning\.context", {"reasoning_context": "all_turns"}),
    (
        r"(?i)max_completion_tokens.{0,120}max_tokens|max_tokens.{0,80}(?:required|missing)",
        {"max_tokens": "max_tokens"},
    ),
    (r"(?i)max_tokens.{0,120}max_completion_tokens", {"max_tokens": "max_completion_tokens"}),
    (r"(?i)unknown variant `developer`|role.{0,80}developer|developer.{0,80}role", {"role": "system"}),
    (r"(?i)only supports? single tool.?calls?", {"single_calls": True}),
    (r"(?i)unexpected role .?user.? after role .?tool", {"after_tool": "assistant"}),
    (
        r"(?i)only .{0,12}type.{0,6}function.{0,8}tools|type.{0,12} tools? must be .{0,4}function"
        r"|tools?.{0,20}type.{0,40}(?:must be|expected|should be) .{0,10}function",
        {"custom_tools": False, "web_search": False},
    ),
    (r"(?i)custom.{0,20}tool|tool.{0,30}type.{0,20}custom", {"custom_tools": False}),
    (r"(?i)web_search", {"web_search": False}),
    (r"(?i)tool.?call.?id.{0,120}(?:length (?:of )?9|9 characters|a-z, A-Z, 0-9)", {"tool_ids": "nine"}),
    (
        r"(?i)(?:call_id|tool_calls).{0,160}(?:maximum length|too long|string_above_max_length)",
        {"tool_ids": "forty"},
    ),
    (r"(?i)content.{0,60}(?:null|none)\b|content.{0,40}field is required", {"null_content": False}),
    (
        r"(?i)\b(?:content|text|messages?)\b.{0,80}(?:non-?(?:whitespace|empty|blank)"
        r"|(?:must not|cannot|can't|should not|may not) be (?:blank|empty)|\bis (?:blank|empty))",
        {"null_content": True},
    ),
    (
        r"(?i)content.{0,80}(?:must be a string|expected a string|should be a valid string"
        r"|invalid type: sequence)",
        {"text_parts": False},
    ),
    (
        r"(?i)arguments.{0,120}(?:json|object|dict)|(?:json|parse).{0,120}arguments"
        r"|can only get item pairs",
        {"arguments": "object"},
    ),
)
"""Patterns of messages in refusals, with the quirks that they teach."""


def _form(text: str) -> Lesson | None:
    for pattern, quirks in FORMS:
        if re.search(pattern, text, re.DOTALL):
            return Lesson(quirks)
    return None


_REFUSES: Final = (
    r"(?i)unsupported|unknown|unrecogni[sz]ed|not permitted|not allowed|\bextra\b|invalid|does not support"
    r"|not supported|unexpected|no such"
)


_SCHEMA_REFUSED: Final = r"(?i)invalid (?:json )?schema|schema is (?:invalid|not valid)|schema missing"


def _field(text: str, param: str, request: bytes, quirks: Quirks) -> Mapping[str, Json] | None:
    """Return the lesson of a refused field of the request, which is omitted, or of a refused schema, which is written
    in its plain form.
    """
    if param or re.search(_REFUSES, text):
        for name in quirks.optional:
            is_new = name not in quirks.omit and f'"{name}"'.encode() in request
            if is_new and _is_named(name, text, param):
                return {"omit": (*quirks.omit, name)}
    if quirks.schema == "gemini" or not re.search(r"(?i)schema|parameters|tools\[", text):
        return None
    if re.search(r"response_format|text\.format", text):  # the schema of the answer is the client's own
        return None
    keywords = (*DROPPED, "$ref", "anyOf", "oneOf", "const")
    is_named = any(re.search(rf"{re.escape(name)}\b", text) for name in keywords)
    if quirks.schema == "full" and (is_named or re.search(_SCHEMA_REFUSED, text)):
        return {"schema": "plain"}
    return {"schema": "gemini"} if "additionalProperties" in text else None


def _is_named(name: str, text: str, param: str) -> bool:
    parts = param.split(".")
    words = (name, "include_usage") if name == "stream_options" else (name,)
    return parts[0] in words or parts[-1] in words or any(re.search(rf"\b{word}\b", text) for word in words)
