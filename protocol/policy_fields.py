"""Policies as fields of models.

Other spellings that clients send (camelCase names, the tag `type` instead of `mode`) are understood when read and never
written.
"""

from collections.abc import Mapping
from typing import Annotated

from pydantic import BeforeValidator, Field, SerializerFunctionWrapHandler, WrapSerializer
from typing_extensions import TypeAliasType

from protocol.base import Json
from protocol.policy import MAX_EFFORT_LENGTH, DangerFullAccess, ReadOnly, WorkspaceWrite, kebab, snake


def usual_spelling(raw: Json) -> Json:
    """A sandbox policy as some client wrote it, with tag, names and fields in the usual spelling."""
    if not isinstance(raw, Mapping):
        return raw
    fields = {snake(key): value for key, value in raw.items() if isinstance(key, str)}
    tag = fields.pop("mode", None) or fields.pop("type", None)
    return {**fields, "mode": kebab(tag) if isinstance(tag, str) else tag}


def _written(policy: Json, write: SerializerFunctionWrapHandler) -> Json:
    """Without an empty list of roots."""
    written = write(policy)
    if isinstance(written, dict) and not written.get("writable_roots", True):
        del written["writable_roots"]
    return written


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
        WrapSerializer(_written),
    ],
)

StoredSandboxPolicy = Annotated[SandboxPolicy, BeforeValidator(_absolute_roots)]
"""As a stored conversation has it. Nobody knows what a relative root was relative to: it is none."""

EffortText = Annotated[str, Field(min_length=1, max_length=MAX_EFFORT_LENGTH)]
"""An effort as it was said: one that is known or the model's own."""
