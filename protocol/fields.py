"""Kinds of fields that several resources share: ids, texts, numbers, policies, and what is refused in them.

Other spellings of policies that clients send (camelCase names, the tag `type` instead of `mode`) are understood when
read and never written.
"""

from collections.abc import Mapping
from typing import Annotated

from pydantic import BeforeValidator, Field, StrictBool, StrictInt
from typing_extensions import TypeAliasType

from protocol.ids import Checked, ConversationId, is_unicode, parse_conversation_id
from protocol.policy import MAX_EFFORT_LENGTH, DangerFullAccess, ReadOnly, WorkspaceWrite, kebab, snake
from protocol.structs import Json


def _uuid(text: str) -> ConversationId:
    parsed = parse_conversation_id(text)
    if parsed is None:
        raise ValueError("expected a UUID")
    return parsed


def _text(text: str) -> str:
    """`text` with lone surrogates replaced, which neither the model nor a file could be given."""
    return text if is_unicode(text) else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


KnownId = Annotated[ConversationId, Checked(_uuid)]
UuidText = Annotated[str, Checked(_uuid)]
CleanText = Annotated[str, Checked(_text)]
Flag = StrictBool
Count = Annotated[StrictInt, Field(ge=0, lt=2**64)]


def usual_spelling(raw: Json) -> Json:
    """Return a sandbox policy as some client wrote it, with tag, names and fields in the usual spelling."""
    if not isinstance(raw, Mapping):
        return raw
    fields = {snake(key): value for key, value in raw.items() if isinstance(key, str)}
    tag = fields.pop("mode", None) or fields.pop("type", None)
    return {**fields, "mode": kebab(tag) if isinstance(tag, str) else tag}


def _absolute_roots(raw: Json) -> Json:
    fields = usual_spelling(raw)
    roots = fields.get("writable_roots") if isinstance(fields, dict) else None
    if not isinstance(roots, list):
        return fields
    kept = [root for root in roots if not isinstance(root, str) or root.startswith("/")]
    return {**fields, "writable_roots": kept}


SandboxPolicy = TypeAliasType(
    "SandboxPolicy",
    Annotated[
        Annotated[DangerFullAccess | ReadOnly | WorkspaceWrite, Field(discriminator="mode")],
        BeforeValidator(usual_spelling),
    ],
)

StoredSandboxPolicy = Annotated[SandboxPolicy, BeforeValidator(_absolute_roots)]
"""As a stored conversation has it. Nobody knows what a relative root was relative to: it is none."""

EffortText = Annotated[str, Field(min_length=1, max_length=MAX_EFFORT_LENGTH)]
"""An effort as it was said: one that is known or the model's own."""
