"""What the agent may do: approval policy, sandbox policy, decisions; and how hard the model should think.

The values are spelled as configuration files and stored conversations have them. Plain values, so that settings are
read before pydantic is loaded; `policy_fields` has the types for fields of models.
"""

from collections.abc import Collection, Iterable
from enum import StrEnum
from posixpath import normpath
from typing import Final, Literal, Self

from app_server_protocol.ids import AbsolutePath
from app_server_protocol.structs import EngineStruct, replace, shown


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
    """Never ask; what fails is reported to the model."""

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        if value in ("unlessTrusted", "unless-trusted"):
            return cls("untrusted")
        return super()._missing_(value)


class TurnMode(StrEnum):
    """Way in which the model works with the user."""

    DEFAULT = "default"
    PLAN = "plan"
    """It finds out and asks, proposes a plan, and changes no files."""


class QuestionKinds(EngineStruct):
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


class ElicitationAction(StrEnum):
    ACCEPT = "accept"
    DECLINE = "decline"
    CANCEL = "cancel"


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


ULTRA: Final = "ultra"
"""The most that there is. A word of clients, which no provider takes."""

FURTHER_EFFORTS: Final = ("xhigh", "max", ULTRA)
"""Efforts of newer models, for which the conversation API has no word."""


def known_effort(word: str | None) -> ReasoningEffort | None:
    """Return an effort in a word of the conversation API: its highest for one beyond that, None for one that nobody
    knows.
    """
    if word in FURTHER_EFFORTS:
        return ReasoningEffort.HIGH
    return next((each for each in ReasoningEffort if each.value == word), None)


MAX_EFFORT_LENGTH = 64


class ReasoningSummary(StrEnum):
    AUTO = "auto"
    CONCISE = "concise"
    DETAILED = "detailed"
    NONE = "none"


class Verbosity(StrEnum):
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


class DangerFullAccess(EngineStruct):
    """No sandbox at all."""

    mode: Literal["danger-full-access"] = "danger-full-access"


class ReadOnly(EngineStruct):
    """Everything may be read, nothing written, no network."""

    mode: Literal["read-only"] = "read-only"


class WorkspaceWrite(EngineStruct, omit_defaults=True):
    """Like read-only, but the working directory, the given roots and the temporary folders may be written."""

    mode: Literal["workspace-write"] = shown("workspace-write")
    writable_roots: tuple[AbsolutePath, ...] = ()
    network_access: bool = shown(False)
    exclude_tmpdir_env_var: bool = shown(False)
    exclude_slash_tmp: bool = shown(False)


SandboxPolicy = DangerFullAccess | ReadOnly | WorkspaceWrite


def with_roots(
    policy: SandboxPolicy, roots: Iterable[str], instead_of: Collection[str] = ()
) -> SandboxPolicy:
    """`policy` with more writable roots, if it has any at all; `instead_of` are those that it was given so before."""
    if not isinstance(policy, WorkspaceWrite):
        return policy
    kept = (root for root in policy.writable_roots if root not in instead_of)
    return replace(policy, writable_roots=tuple(dict.fromkeys((*kept, *roots))))


def roots_beside(cwd: str, roots: Iterable[str]) -> tuple[str, ...]:
    """Return the other folders of a workspace, each once."""
    return tuple(root for root in dict.fromkeys(map(normpath, roots)) if root != normpath(cwd))


def snake(name: str) -> str:
    """Spell `writableRoots`, `writable-roots` or `writable_roots` as `writable_roots`."""
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name).replace("-", "_")


def kebab(name: str) -> str:
    return snake(name).replace("_", "-")
