"""The empty lists of what this server cannot be extended with."""

from __future__ import annotations

from app_server.apis.services import ConfigSource
from app_server.apis.v2.positions import page_by_position
from protocol.table import NoParams
from protocol.v2.extensions import (
    AppsInstalledParams,
    AppsInstalledResponse,
    AppsListParams,
    AppsListResponse,
    HooksListEntry,
    HooksListParams,
    HooksListResponse,
    PluginInstalledParams,
    PluginInstalledResponse,
    PluginListParams,
    PluginListResponse,
    WindowsSandboxReadiness,
    WindowsSandboxReadinessResponse,
)


async def hooks_list(source: ConfigSource, params: HooksListParams) -> HooksListResponse:
    cwds = params.cwds or (str(source.cwd),)
    return HooksListResponse(data=tuple(HooksListEntry(cwd=cwd) for cwd in cwds))


async def app_list(source: ConfigSource, params: AppsListParams) -> AppsListResponse:
    page_by_position((), params.cursor, params.limit)
    return AppsListResponse()


async def app_installed(source: ConfigSource, params: AppsInstalledParams) -> AppsInstalledResponse:
    return AppsInstalledResponse()


async def plugin_list(source: ConfigSource, params: PluginListParams) -> PluginListResponse:
    return PluginListResponse()


async def plugin_installed(source: ConfigSource, params: PluginInstalledParams) -> PluginInstalledResponse:
    return PluginInstalledResponse()


async def windows_sandbox_readiness(
    source: ConfigSource, params: NoParams
) -> WindowsSandboxReadinessResponse:
    return WindowsSandboxReadinessResponse(status=WindowsSandboxReadiness.NOT_CONFIGURED)
