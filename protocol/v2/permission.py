"""A turn that asks for more than its sandbox gives: what it wants, and what it gets."""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypeAliasType

from protocol.base import WireModel, omit_none
from protocol.fields import Count, Flag
from protocol.structs import WireStruct
from protocol.v2.fields import LegacyAppPathString


class FileSystemAccessMode(StrEnum):
    READ = "read"
    WRITE = "write"
    DENY = "deny"


class RootFileSystemSpecialPath(WireModel):
    kind: Literal["root"] = "root"


class MinimalFileSystemSpecialPath(WireModel):
    kind: Literal["minimal"] = "minimal"


class ProjectRootsFileSystemSpecialPath(WireModel):
    kind: Literal["project_roots"] = "project_roots"
    subpath: LegacyAppPathString | None = None


class TmpdirFileSystemSpecialPath(WireModel):
    kind: Literal["tmpdir"] = "tmpdir"


class SlashTmpFileSystemSpecialPath(WireModel):
    kind: Literal["slash_tmp"] = "slash_tmp"


class UnknownFileSystemSpecialPath(WireModel):
    kind: Literal["unknown"] = "unknown"
    path: str
    subpath: LegacyAppPathString | None = None


FileSystemSpecialPath = TypeAliasType(
    "FileSystemSpecialPath",
    Annotated[
        RootFileSystemSpecialPath
        | MinimalFileSystemSpecialPath
        | ProjectRootsFileSystemSpecialPath
        | TmpdirFileSystemSpecialPath
        | SlashTmpFileSystemSpecialPath
        | UnknownFileSystemSpecialPath,
        Field(discriminator="kind"),
    ],
)


class PathFileSystemPath(WireModel):
    type: Literal["path"] = "path"
    path: LegacyAppPathString


class GlobPatternFileSystemPath(WireModel):
    type: Literal["glob_pattern"] = "glob_pattern"
    pattern: str


class SpecialFileSystemPath(WireModel):
    type: Literal["special"] = "special"
    value: FileSystemSpecialPath


FileSystemPath = TypeAliasType(
    "FileSystemPath",
    Annotated[
        PathFileSystemPath | GlobPatternFileSystemPath | SpecialFileSystemPath, Field(discriminator="type")
    ],
)


class FileSystemSandboxEntry(WireModel):
    path: FileSystemPath
    access: FileSystemAccessMode


class AdditionalFileSystemPermissions(WireModel):
    read: tuple[LegacyAppPathString, ...] | None = None
    write: tuple[LegacyAppPathString, ...] | None = None
    glob_scan_max_depth: Count | None = omit_none()
    entries: tuple[FileSystemSandboxEntry, ...] | None = omit_none()


class AdditionalNetworkPermissions(WireModel):
    enabled: Flag | None = None


class AdditionalPermissionProfile(WireModel):
    network: AdditionalNetworkPermissions | None = None
    file_system: AdditionalFileSystemPermissions | None = None


class RequestPermissionProfile(WireStruct, forbid_unknown_fields=True):
    network: AdditionalNetworkPermissions | None = None
    file_system: AdditionalFileSystemPermissions | None = None


class GrantedPermissionProfile(WireModel):
    network: AdditionalNetworkPermissions | None = omit_none()
    file_system: AdditionalFileSystemPermissions | None = omit_none()


class PermissionGrantScope(StrEnum):
    TURN = "turn"
    SESSION = "session"


class PermissionsRequestApprovalParams(WireStruct):
    thread_id: str
    turn_id: str
    item_id: str
    environment_id: str | None = None
    started_at_ms: int
    cwd: LegacyAppPathString
    reason: str | None = None
    permissions: RequestPermissionProfile


class PermissionsRequestApprovalResponse(WireModel):
    """What is granted; nothing of it means no."""

    permissions: GrantedPermissionProfile
    scope: PermissionGrantScope = PermissionGrantScope.TURN
    strict_auto_review: Flag | None = None
