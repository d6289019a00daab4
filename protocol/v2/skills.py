"""Skills that the model can be pointed to."""

from enum import StrEnum

from protocol.base import WireModel, omit_none
from protocol.fields import Flag
from protocol.paths import AbsolutePath, PathText
from protocol.v2.fields import AbsolutePathBuf, LegacyAppPathString


class SkillScope(StrEnum):
    USER = "user"
    REPO = "repo"
    SYSTEM = "system"
    ADMIN = "admin"


class SkillInterface(WireModel):
    display_name: str | None = omit_none()
    short_description: str | None = omit_none()
    icon_small: AbsolutePathBuf | None = omit_none()
    icon_large: AbsolutePathBuf | None = omit_none()
    icon_small_url: str | None = omit_none()
    icon_large_url: str | None = omit_none()
    brand_color: str | None = omit_none()
    default_prompt: str | None = omit_none()


class SkillToolDependency(WireModel):
    type: str
    value: str
    description: str | None = omit_none()
    transport: str | None = omit_none()
    command: str | None = omit_none()
    url: str | None = omit_none()


class SkillDependencies(WireModel):
    tools: tuple[SkillToolDependency, ...]


class SkillMetadata(WireModel):
    name: str
    description: str
    short_description: str | None = omit_none()
    interface: SkillInterface | None = omit_none()
    dependencies: SkillDependencies | None = omit_none()
    path: LegacyAppPathString
    scope: SkillScope
    enabled: bool
    plugin_id: str | None = None


class SkillErrorInfo(WireModel):
    path: str
    message: str


class SkillsListEntry(WireModel):
    """The skills of one working directory, and what is wrong with those that are no skills."""

    cwd: str
    skills: tuple[SkillMetadata, ...]
    errors: tuple[SkillErrorInfo, ...]


class SkillsListParams(WireModel):
    cwds: tuple[PathText, ...] = ()
    force_reload: Flag = False


class SkillsListResponse(WireModel):
    data: tuple[SkillsListEntry, ...]


class SkillsExtraRootsSetParams(WireModel):
    """Folders with further skills, for as long as this server runs; they replace those of before."""

    extra_roots: tuple[AbsolutePath, ...]


class SkillsExtraRootsSetResponse(WireModel):
    pass


class SkillsConfigWriteParams(WireModel):
    path: AbsolutePath | None = None
    name: str | None = None
    enabled: Flag


class SkillsConfigWriteResponse(WireModel):
    effective_enabled: bool


class SkillsChangedNotification(WireModel):
    """Some skill changed; ask again."""
