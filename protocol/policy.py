"""What the agent may do: approval policy, sandbox policy, decisions; and how hard the model should think.

The values are spelled as configuration files and stored conversations have them. Other spellings that clients
send (camelCase names, the tag `type` instead of `mode`) are understood when read and never written.
"""

from collections.abc import Mapping
from enum import StrEnum
from operator import not_
from typing import Annotated, Final, Literal, Self

from pydantic import BeforeValidator, Field
from typing_extensions import TypeAliasType

from protocol.base import EngineModel, Json
from protocol.fields import PathText


class _Spelled(StrEnum):
    """An enum that also understands its values in camelCase and snake_case."""

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        if not isinstance(value, str):
            return None
        wanted = kebab(value)
        return next((member for member in cls if member.value == wanted), None)


class AskForApproval(_Spelled):
    """When a command needs the user's consent before it runs."""

    UNTRUSTED = "untrusted"
    """Ask for everything that is not known to only read."""
    ON_FAILURE = "on-failure"
    """Run in the sandbox without asking; ask when the sandbox stood in the way."""
    ON_REQUEST = "on-request"
    """The model decides when to ask for more than the sandbox gives."""
    NEVER = "never"
    """Never ask; what fails is told to the model."""

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        if value in ("unlessTrusted", "unless-trusted"):
            return cls("untrusted")
        return super()._missing_(value)


class TurnMode(StrEnum):
    """How the model works with the user."""

    DEFAULT = "default"
    PLAN = "plan"
    """It finds out and asks, proposes a plan, and changes no files."""


class QuestionKinds(EngineModel):
    """Which kinds of questions reach the user under `on-request`; what would need one of another kind is refused."""

    sandbox_approval: bool = True
    """Commands and patches that need more than the sandbox gives."""
    rules: bool = True
    """Commands that the user's rules ask about."""
    skill_approval: bool = False
    request_permissions: bool = False
    mcp_elicitations: bool = True
    """Questions of MCP servers."""


class SandboxMode(_Spelled):
    """The three sandboxes by name, without their settings."""

    READ_ONLY = "read-only"
    WORKSPACE_WRITE = "workspace-write"
    DANGER_FULL_ACCESS = "danger-full-access"


class ReviewDecision(StrEnum):
    """The user's answer to an approval prompt."""

    APPROVED = "approved"
    APPROVED_FOR_SESSION = "approved_for_session"
    """Approved, and the very same request needs no prompt again in this conversation, unless a later turn's policy is
    stricter."""
    DENIED = "denied"
    """Not this; the turn goes on and the model may try something else."""
    ABORT = "abort"
    """Not this, and the turn ends here."""


class ReasoningEffort(StrEnum):
    """The efforts that are known. Models may have others."""

    NONE = "none"
    MINIMAL = "minimal"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


FURTHER_EFFORTS: Final = ("xhigh", "max", "ultra")
"""Efforts of newer models, for which the conversation API has no word."""


def known_effort(word: str | None) -> ReasoningEffort | None:
    """An effort in a word of the conversation API: its highest for one beyond that, None for one that nobody knows."""
    if word in FURTHER_EFFORTS:
        return ReasoningEffort.HIGH
    return next((each for each in ReasoningEffort if each.value == word), None)


MAX_EFFORT_LENGTH = 64

EffortText = Annotated[str, Field(min_length=1, max_length=MAX_EFFORT_LENGTH)]
"""An effort as it was said: one that is known or the model's own."""


class ReasoningSummary(StrEnum):
    AUTO = "auto"
    CONCISE = "concise"
    DETAILED = "detailed"
    NONE = "none"


class Verbosity(StrEnum):
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


class DangerFullAccess(EngineModel):
    """No sandbox at all."""

    mode: Literal["danger-full-access"] = "danger-full-access"


class ReadOnly(EngineModel):
    """Everything may be read, nothing written, no network."""

    mode: Literal["read-only"] = "read-only"


class WorkspaceWrite(EngineModel):
    """Like read-only, but the working directory, the given roots and the temporary folders may be written."""

    mode: Literal["workspace-write"] = "workspace-write"
    writable_roots: tuple[PathText, ...] = Field(default=(), exclude_if=not_)
    network_access: bool = False
    exclude_tmpdir_env_var: bool = False
    exclude_slash_tmp: bool = False


def usual_spelling(raw: Json) -> Json:
    """A sandbox policy as some client wrote it, with tag, names and fields in the usual spelling."""
    if not isinstance(raw, Mapping):
        return raw
    fields = {snake(key): value for key, value in raw.items() if isinstance(key, str)}
    tag = fields.pop("mode", None) or fields.pop("type", None)
    return {**fields, "mode": kebab(tag) if isinstance(tag, str) else tag}


SandboxPolicy = TypeAliasType(
    "SandboxPolicy",
    Annotated[
        Annotated[DangerFullAccess | ReadOnly | WorkspaceWrite, Field(discriminator="mode")],
        BeforeValidator(usual_spelling),
    ],
)


def snake(name: str) -> str:
    """`writableRoots`, `writable-roots` or `writable_roots` as `writable_roots`."""
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name).replace("-", "_")


def kebab(name: str) -> str:
    return snake(name).replace("_", "-")
