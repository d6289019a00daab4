"""Skills that the model can be pointed to."""

from enum import StrEnum

from protocol.base import WireModel
from protocol.fields import Flag
from protocol.paths import AbsolutePath, PathText
from protocol.structs import WireStruct, shown
from protocol.v2.fields import AbsolutePathBuf, LegacyAppPathString


class SkillScope(StrEnum):
    USER = "user"
    REPO = "repo"
    SYSTEM = "system"
    ADMIN = "admin"


class SkillInterface(WireStruct, omit_defaults=True):
    display_name: str | None = None
    short_description: str | None = None
    icon_small: AbsolutePathBuf | None = None
    icon_large: AbsolutePathBuf | None = None
    icon_small_url: str | None = None
    icon_large_url: str | None = None
    brand_color: str | None = None
    default_prompt: str | None = None


class SkillToolDependency(WireStruct, omit_defaults=True):
    type: str
    value: str
    description: str | None = None
    transport: str | None = None
    command: str | None = None
    url: str | None = None


class SkillDependencies(WireStruct):
    tools: tuple[SkillToolDependency, ...]


class SkillMetadata(WireStruct, omit_defaults=True):
    name: str
    description: str
    short_description: str | None = None
    interface: SkillInterface | None = None
    dependencies: SkillDependencies | None = None
    path: LegacyAppPathString
    scope: SkillScope
    enabled: bool
    plugin_id: str | None = shown(None)


class SkillErrorInfo(WireStruct):
    path: str
    message: str


class SkillsListEntry(WireStruct):
    """The skills of one working directory, and what is wrong with those that are no skills."""

    cwd: str
    skills: tuple[SkillMetadata, ...]
    errors: tuple[SkillErrorInfo, ...]


class SkillsListParams(WireModel):
    cwds: tuple[PathText, ...] = ()
    force_reload: Flag = False


class SkillsListResponse(WireStruct):
    data: tuple[SkillsListEntry, ...]


class SkillsExtraRootsSetParams(WireModel):
    """Folders with further skills, for as long as this server runs; they replace those of before."""

    extra_roots: tuple[AbsolutePath, ...]


class SkillsExtraRootsSetResponse(WireStruct):
    pass


class SkillsConfigWriteParams(WireModel):
    path: AbsolutePath | None = None
    name: str | None = None
    enabled: Flag


class SkillsConfigWriteResponse(WireStruct):
    effective_enabled: bool


class SkillsChangedNotification(WireStruct):
    """Some skill changed; ask again."""
