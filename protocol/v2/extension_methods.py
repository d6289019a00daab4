"""Methods that ask what this server is extended with: hooks, apps, plugins, the sandbox of another system."""

from typing import Final

from protocol.table import AnyClientRequest, ClientRequest, NoParams
from protocol.v2 import extensions

HOOKS_LIST: Final = ClientRequest(
    "hooks/list",
    extensions.HooksListParams,
    extensions.HooksListResponse,
    "The hooks for each working directory: none.",
)
APP_LIST: Final = ClientRequest(
    "app/list",
    extensions.AppsListParams,
    extensions.AppsListResponse,
    "The apps that there are: none.",
)
APP_INSTALLED: Final = ClientRequest(
    "app/installed",
    extensions.AppsInstalledParams,
    extensions.AppsInstalledResponse,
    "The apps that are installed: none.",
)
PLUGIN_LIST: Final = ClientRequest(
    "plugin/list",
    extensions.PluginListParams,
    extensions.PluginListResponse,
    "The plugins that there are: none.",
)
PLUGIN_INSTALLED: Final = ClientRequest(
    "plugin/installed",
    extensions.PluginInstalledParams,
    extensions.PluginInstalledResponse,
    "The plugins that are installed: none.",
)
WINDOWS_SANDBOX_READINESS: Final = ClientRequest(
    "windowsSandbox/readiness",
    NoParams,
    extensions.WindowsSandboxReadinessResponse,
    "Whether the sandbox of Windows can be used: no.",
)

REQUESTS: Final[tuple[AnyClientRequest, ...]] = (
    HOOKS_LIST,
    APP_LIST,
    APP_INSTALLED,
    PLUGIN_LIST,
    PLUGIN_INSTALLED,
    WINDOWS_SANDBOX_READINESS,
)
