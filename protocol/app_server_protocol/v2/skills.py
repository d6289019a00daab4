"""Extensions of a server. This server has skills, but none of the apps and plugins of other servers.

Their lists exist for clients that request them at their start, and are always empty.
"""

from typing import Annotated, Final, Literal

from typing_extensions import TypeAliasType

from app_server_protocol.base import Foreign, WireModel, unserved
from app_server_protocol.ids import AbsolutePath, PathText
from app_server_protocol.method_table import ClientRequest, NoParams, NoResult, ServerNotification
from app_server_protocol.outgoing import WireStruct, always_written
from app_server_protocol.v2.fields import AbsolutePathBuf, ByPages, LegacyAppPathString
from app_server_protocol.wire_fields import Flag

SkillScope = TypeAliasType("SkillScope", Literal["user", "repo", "system", "admin"])


class SkillInterface(WireStruct, omit_defaults=True):
    display_name: str | None = None
    short_description: str | None = None
    icon_small: AbsolutePathBuf | None = None
    icon_large: AbsolutePathBuf | None = None
    icon_small_url: str | None = None
    icon_large_url: str | None = None
    brand_color: str | None = None
    default_prompt: str | None = None


class SkillMetadata(WireStruct, omit_defaults=True):
    name: str
    description: str
    short_description: str | None = None
    interface: SkillInterface | None = None
    dependencies: Annotated[Foreign, unserved("SkillDependencies")] | None = None
    path: LegacyAppPathString
    scope: SkillScope
    enabled: bool
    plugin_id: str | None = always_written(None)


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


class SkillsConfigWriteParams(WireModel):
    path: AbsolutePath | None = None
    name: str | None = None
    enabled: Flag


class SkillsConfigWriteResponse(WireStruct):
    effective_enabled: bool


class SkillsChangedNotification(WireStruct):
    """Some skill changed; ask again."""


class AppsListParams(ByPages):
    thread_id: str | None = None
    force_refetch: Flag = False


class AppsListResponse(WireStruct):
    data: Annotated[tuple[()], unserved("Nothing")] = ()
    next_cursor: str | None = None


class AppsInstalledParams(WireModel):
    thread_id: str | None = None
    force_refresh: Flag = False


class AppsInstalledResponse(WireStruct):
    apps: tuple[Annotated[Foreign, unserved("InstalledApp")], ...] = ()


class PluginListParams(WireModel):
    cwds: tuple[PathText, ...] | None = None
    force_refetch: Flag = False


class PluginListResponse(WireStruct):
    marketplaces: tuple[Annotated[Foreign, unserved("PluginMarketplaceEntry")], ...] = ()
    marketplace_load_errors: tuple[Annotated[Foreign, unserved("MarketplaceLoadErrorInfo")], ...] = ()
    featured_plugin_ids: tuple[str, ...] = ()


class PluginInstalledParams(WireModel):
    cwds: tuple[PathText, ...] | None = None
    install_suggestion_plugin_names: tuple[str, ...] | None = None


class PluginInstalledResponse(WireStruct):
    marketplaces: tuple[Annotated[Foreign, unserved("PluginMarketplaceEntry")], ...] = ()
    marketplace_load_errors: tuple[Annotated[Foreign, unserved("MarketplaceLoadErrorInfo")], ...] = ()


WindowsSandboxReadiness = TypeAliasType(
    "WindowsSandboxReadiness", Literal["ready", "notConfigured", "updateRequired"]
)


class WindowsSandboxReadinessResponse(WireStruct):
    """State of the sandbox of another system."""

    status: WindowsSandboxReadiness


SKILLS_LIST: Final = ClientRequest(
    "skills/list",
    SkillsListParams,
    SkillsListResponse,
    "The skills that there are for each working directory.",
)
SKILLS_EXTRA_ROOTS_SET: Final = ClientRequest(
    "skills/extraRoots/set", SkillsExtraRootsSetParams, NoResult, "Names further folders with skills."
)
SKILLS_CONFIG_WRITE: Final = ClientRequest(
    "skills/config/write",
    SkillsConfigWriteParams,
    SkillsConfigWriteResponse,
    "Switches a skill on or off in the user's configuration.",
)
APP_LIST: Final = ClientRequest(
    "app/list",
    AppsListParams,
    AppsListResponse,
    "The apps that there are: none.",
)
APP_INSTALLED: Final = ClientRequest(
    "app/installed",
    AppsInstalledParams,
    AppsInstalledResponse,
    "The apps that are installed: none.",
)
PLUGIN_LIST: Final = ClientRequest(
    "plugin/list",
    PluginListParams,
    PluginListResponse,
    "The plugins that there are: none.",
)
PLUGIN_INSTALLED: Final = ClientRequest(
    "plugin/installed",
    PluginInstalledParams,
    PluginInstalledResponse,
    "The plugins that are installed: none.",
)
WINDOWS_SANDBOX_READINESS: Final = ClientRequest(
    "windowsSandbox/readiness",
    NoParams,
    WindowsSandboxReadinessResponse,
    "Whether the sandbox of Windows can be used: no.",
)
SKILLS_CHANGED: Final = ServerNotification(
    "skills/changed", SkillsChangedNotification, "The skills changed; ask again."
)
