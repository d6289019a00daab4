"""What other servers of this API can be extended with: hooks, apps, plugins. This one has none of them.

The lists are there for clients that ask for them when they start. All of them are empty.
"""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypeAliasType

from protocol.base import WireModel
from protocol.fields import Count, Flag
from protocol.paths import PathText
from protocol.structs import WireStruct
from protocol.v2.fields import AbsolutePathBuf

Nothing = TypeAliasType("Nothing", tuple[()])
"""A list without entries."""


class HookErrorInfo(WireStruct):
    path: str
    message: str


class HooksListEntry(WireStruct):
    """The hooks of one working directory."""

    cwd: str
    hooks: Nothing = ()
    warnings: tuple[str, ...] = ()
    errors: tuple[HookErrorInfo, ...] = ()


class HooksListParams(WireModel):
    cwds: tuple[PathText, ...] = ()
    thread_id: str | None = None


class HooksListResponse(WireStruct):
    data: tuple[HooksListEntry, ...]


class AppsListParams(WireModel):
    cursor: str | None = None
    limit: Count | None = None
    thread_id: str | None = None
    force_refetch: Flag = False


class AppsListResponse(WireStruct):
    data: Nothing = ()
    next_cursor: str | None = None


class AppsInstalledParams(WireModel):
    thread_id: str | None = None
    force_refresh: Flag = False


class InstalledApp(WireStruct):
    id: str
    runtime_name: str | None = None
    callable: bool
    enabled: bool


class AppsInstalledResponse(WireStruct):
    apps: tuple[InstalledApp, ...] = ()


class MarketplaceInterface(WireStruct):
    display_name: str | None = None


class PluginAuthPolicy(StrEnum):
    ON_INSTALL = "ON_INSTALL"
    ON_USE = "ON_USE"


class PluginInstallPolicy(StrEnum):
    NOT_AVAILABLE = "NOT_AVAILABLE"
    AVAILABLE = "AVAILABLE"
    INSTALLED_BY_DEFAULT = "INSTALLED_BY_DEFAULT"


class RemotePluginSource(WireStruct):
    type: Literal["remote"] = "remote"


class LocalPluginSource(WireStruct):
    type: Literal["local"] = "local"
    path: AbsolutePathBuf


PluginSource = TypeAliasType(
    "PluginSource", Annotated[RemotePluginSource | LocalPluginSource, Field(discriminator="type")]
)


class PluginSummary(WireStruct):
    id: str
    name: str
    installed: bool
    enabled: bool
    source: PluginSource
    install_policy: PluginInstallPolicy
    auth_policy: PluginAuthPolicy


class PluginMarketplaceEntry(WireStruct):
    """Where plugins are offered."""

    name: str
    path: AbsolutePathBuf | None = None
    interface: MarketplaceInterface | None = None
    plugins: tuple[PluginSummary, ...] = ()


class MarketplaceLoadErrorInfo(WireStruct):
    marketplace_path: AbsolutePathBuf
    message: str


class PluginListParams(WireModel):
    cwds: tuple[PathText, ...] | None = None
    force_refetch: Flag = False


class PluginListResponse(WireStruct):
    marketplaces: tuple[PluginMarketplaceEntry, ...] = ()
    marketplace_load_errors: tuple[MarketplaceLoadErrorInfo, ...] = ()
    featured_plugin_ids: tuple[str, ...] = ()


class PluginInstalledParams(WireModel):
    cwds: tuple[PathText, ...] | None = None
    install_suggestion_plugin_names: tuple[str, ...] | None = None


class PluginInstalledResponse(WireStruct):
    marketplaces: tuple[PluginMarketplaceEntry, ...] = ()
    marketplace_load_errors: tuple[MarketplaceLoadErrorInfo, ...] = ()


class WindowsSandboxReadiness(StrEnum):
    READY = "ready"
    NOT_CONFIGURED = "notConfigured"
    UPDATE_REQUIRED = "updateRequired"


class WindowsSandboxReadinessResponse(WireStruct):
    """Of the sandbox of another system."""

    status: WindowsSandboxReadiness
