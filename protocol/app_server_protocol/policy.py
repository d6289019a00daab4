"""The permissions of the agent: approval policy, sandbox policy, decisions; and the reasoning effort of the model.

The values have the spelling of configuration files and stored conversations. Plain values, so that settings are read
before pydantic is loaded; `policy_fields` has the types for fields of models.
"""

from collections.abc import Collection, Iterable
from enum import StrEnum
from posixpath import join, normpath
from typing import Final, Literal, NewType, Self

from app_server_protocol.ids import AbsolutePath
from app_server_protocol.outgoing import EngineStruct, always_written
from app_server_protocol.values import replace


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
    """Ask for every command that is not known to only read."""
    ON_FAILURE = "on-failure"
    """Run in the sandbox without asking; ask if the sandbox prevents something."""
    ON_REQUEST = "on-request"
    """The model decides when to ask for more rights than the sandbox gives."""
    NEVER = "never"
    """Never ask; failures are reported to the model."""

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        if value in ("unlessTrusted", "unless-trusted"):
            return cls("untrusted")
        return super()._missing_(value)


class TurnMode(StrEnum):
    """Way in which the model works with the user."""

    DEFAULT = "default"
    PLAN = "plan"
    """The model investigates and asks, proposes a plan, and changes no files."""


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
    """Approved, and an identical request needs no prompt again in this conversation, unless a later turn's policy is
    stricter.
    """
    DENIED = "denied"
    """Denied; the turn goes on and the model may try another way."""
    ABORT = "abort"
    """Denied, and the turn ends here."""


class ReasoningEffort(StrEnum):
    """The efforts that are known. Models may have others."""

    NONE = "none"
    MINIMAL = "minimal"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


DEFAULT_TIER: Final = "default"
"""Name of the provider's usual service tier, which is not sent to it."""

ULTRA: Final = "ultra"
"""The highest effort. It is a word of clients, which no provider accepts."""

FURTHER_EFFORTS: Final = ("xhigh", "max", ULTRA)
"""Efforts of newer models that the conversation API does not have."""


def known_effort(word: str | None) -> ReasoningEffort | None:
    """Return an effort in a word of the conversation API: its highest one for a higher effort, None for an unknown
    effort.
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

    mode: Literal["workspace-write"] = always_written("workspace-write")
    writable_roots: tuple[AbsolutePath, ...] = ()
    network_access: bool = always_written(False)
    exclude_tmpdir_env_var: bool = always_written(False)
    exclude_slash_tmp: bool = always_written(False)


class Access(StrEnum):
    """Word of a permission profile for a place."""

    READ = "read"
    WRITE = "write"
    DENY = "deny"


FolderName = NewType("FolderName", str)
"""Name of a folder that commands must not write in a writable root. A missing one is an empty folder while commands
run. A file has no such name: an empty file in its place could not be removed without a loss, as another program may
have written to it meanwhile.
"""
PROTECTED_FOLDERS: Final = (
    FolderName(".git"),
    FolderName(".codex"),
    FolderName(".agents"),
    FolderName(".aws"),
)
"""Names in a writable root that control what the user's tools execute later. Commands and patches may never write them,
even if they are missing. Those of a thread are in the engine's settings (`PermissionSettings.protected_folders`).
"""
CLAUDE_FOLDER: Final = FolderName(".claude")
"""Folder of a project that is one more protected name of a thread if the thread reads the hooks in it."""

ROOT: Final = ":root"
MINIMAL: Final = ":minimal"
TMPDIR: Final = ":tmpdir"
SLASH_TMP: Final = ":slash_tmp"
WORKSPACE_ROOTS: Final = ":workspace_roots"


class FileRule(EngineStruct):
    """Access of a permission profile to one place and everything below it."""

    place: str
    """An absolute path, or one of the words above."""
    below: str = ""
    """The path below each workspace root; empty for the roots themselves."""
    access: Access

    @property
    def is_pattern(self) -> bool:
        """Return whether it stands for every file whose name matches."""
        return is_pattern(self.below or self.place)


class PermissionProfile(EngineStruct):
    """A permission profile: what it does not name is neither readable nor writable."""

    mode: Literal["profile"] = "profile"
    id: str
    extends: str | None = None
    rules: tuple[FileRule, ...] = ()
    roots: tuple[AbsolutePath, ...] = ()
    """Workspace roots beside the working directory."""
    network: bool = False
    pattern_depth: int = 3
    """So many folders deep `**` is searched before each command."""
    notices: tuple[str, ...] = ()
    """Parts that are not enforceable, in words for the user."""


SandboxPolicy = DangerFullAccess | ReadOnly | WorkspaceWrite | PermissionProfile
StoredPolicy = DangerFullAccess | ReadOnly | WorkspaceWrite
"""The kinds of policies that stored conversations have, and APIs without profiles."""


def is_pattern(path: str) -> bool:
    return any(mark in path for mark in "*?[")


def without_profile(policy: SandboxPolicy, cwd: str) -> StoredPolicy:
    """Return the policy itself; for a profile, the nearest policy of a kind that APIs without profiles have."""
    if not isinstance(policy, PermissionProfile):
        return policy
    written = {(rule.place, rule.below) for rule in policy.rules if rule.access is Access.WRITE}
    if not written:
        return ReadOnly()
    return WorkspaceWrite(
        writable_roots=writable_names(policy, cwd),
        network_access=policy.network,
        exclude_tmpdir_env_var=(TMPDIR, "") not in written,
        exclude_slash_tmp=(SLASH_TMP, "") not in written,
    )


def as_profile(policy: ReadOnly | WorkspaceWrite | PermissionProfile) -> PermissionProfile:
    """Return a policy in the form of a profile with the same rights."""
    rules = [FileRule(place=ROOT, access=Access.READ)]
    match policy:
        case PermissionProfile():
            return policy
        case ReadOnly():
            return PermissionProfile(id="", rules=tuple(rules))
        case WorkspaceWrite():
            places = [WORKSPACE_ROOTS]
            places += [] if policy.exclude_slash_tmp else [SLASH_TMP]
            places += [] if policy.exclude_tmpdir_env_var else [TMPDIR]
            rules += [FileRule(place=place, access=Access.WRITE) for place in places]
            return PermissionProfile(
                id="", rules=tuple(rules), roots=policy.writable_roots, network=policy.network_access
            )


def writable_names(policy: SandboxPolicy, cwd: str) -> tuple[str, ...]:
    """Return the folders besides `cwd` and the temporary ones in which a policy lets commands write, under the policy's
    names.
    """
    if isinstance(policy, WorkspaceWrite):
        return policy.writable_roots
    if not isinstance(policy, PermissionProfile):
        return ()
    found: list[str] = []
    for rule in policy.rules:
        if rule.access is not Access.WRITE:
            continue
        if rule.place == WORKSPACE_ROOTS:
            found += [join(root, rule.below).rstrip("/") for root in (cwd, *policy.roots)]
        elif rule.place.startswith("/"):
            found.append(rule.place)
    return tuple(name for name in dict.fromkeys(found) if name != cwd)


def with_roots(
    policy: SandboxPolicy, roots: Iterable[str], instead_of: Collection[str] = ()
) -> SandboxPolicy:
    """Return `policy` with further workspace roots, if it has any; `instead_of` are the roots that an earlier call
    added.
    """
    match policy:
        case WorkspaceWrite():
            return replace(policy, writable_roots=_joined(policy.writable_roots, roots, instead_of))
        case PermissionProfile():
            return replace(policy, roots=_joined(policy.roots, roots, instead_of))
        case _:
            return policy


def _joined(own: Iterable[str], roots: Iterable[str], instead_of: Collection[str]) -> tuple[str, ...]:
    kept = (root for root in own if root not in instead_of)
    return tuple(dict.fromkeys((*kept, *roots)))


def changeable_folders(cwd: str, policy: SandboxPolicy) -> tuple[str, ...]:
    """Return the folders in which commands may have made links: where they write, or did under another policy."""
    return (cwd, *writable_names(policy, cwd), "/tmp")


def roots_beside(cwd: str, roots: Iterable[str]) -> tuple[str, ...]:
    """Return the other folders of a workspace, without duplicates."""
    return tuple(root for root in dict.fromkeys(map(normpath, roots)) if root != normpath(cwd))


def snake(name: str) -> str:
    """Spell `writableRoots`, `writable-roots` or `writable_roots` as `writable_roots`."""
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name).replace("-", "_")


def kebab(name: str) -> str:
    return snake(name).replace("_", "-")
