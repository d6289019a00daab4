"""Hooks of a working directory: what they run, and whether the user has agreed to them."""

from typing import TYPE_CHECKING, Annotated, Final, Literal

import msgspec
from pydantic import Field
from typing_extensions import TypeAliasType

from app_server_protocol.base import WireModel
from app_server_protocol.engine.hook_events import HookEvent
from app_server_protocol.ids import PathText
from app_server_protocol.method_table import ClientRequest
from app_server_protocol.outgoing import WireStruct
from app_server_protocol.v2.fields import AbsolutePathBuf

if TYPE_CHECKING:
    HookEventName = str
else:
    HookEventName = TypeAliasType("HookEventName", Literal[tuple(event.camel for event in HookEvent)])
HookHandlerType = TypeAliasType("HookHandlerType", Literal["command", "mcpTool", "prompt", "agent"])
HookSource = TypeAliasType(
    "HookSource",
    Literal[
        "system",
        "user",
        "project",
        "mdm",
        "sessionFlags",
        "plugin",
        "cloudRequirements",
        "cloudManagedConfig",
        "legacyManagedConfigFile",
        "legacyManagedConfigMdm",
        "unknown",
    ],
)
HookTrustStatus = TypeAliasType("HookTrustStatus", Literal["managed", "untrusted", "trusted", "modified"])


class _Listed(WireStruct):
    key: str
    """Key of the hook in `hooks.state`."""
    event_name: HookEventName
    matcher: str | None = None
    timeout_sec: int
    status_message: str | None = None
    additional_context_limit: int | None = None
    source_path: AbsolutePathBuf
    source: HookSource
    plugin_id: str | None = None
    environment_id: str | None = None
    display_order: int
    enabled: bool
    is_managed: bool
    current_hash: str
    """Digest of the definition, which `trusted_hash` has to have for the hook to run."""
    trust_status: HookTrustStatus


class CommandHookMetadata(_Listed):
    handler_type: Literal["command"] = "command"
    command: str
    is_async: bool = msgspec.field(default=False, name="async")


class McpToolHookMetadata(_Listed):
    """A hook of a kind that does not run here."""

    handler_type: Literal["mcpTool"] = "mcpTool"
    server: str
    tool: str


class PromptHookMetadata(_Listed):
    """A hook of a kind that does not run here."""

    handler_type: Literal["prompt"] = "prompt"


class AgentHookMetadata(_Listed):
    """A hook of a kind that does not run here."""

    handler_type: Literal["agent"] = "agent"


HookMetadata = TypeAliasType(
    "HookMetadata",
    Annotated[
        CommandHookMetadata | McpToolHookMetadata | PromptHookMetadata | AgentHookMetadata,
        Field(discriminator="handler_type"),
    ],
)


class HookErrorInfo(WireStruct):
    path: str
    message: str


class HooksListEntry(WireStruct):
    """The hooks of one working directory, in the order in which their results count, and what is wrong with entries
    that are no hooks.
    """

    cwd: str
    hooks: tuple[HookMetadata, ...]
    warnings: tuple[str, ...]
    errors: tuple[HookErrorInfo, ...]


class HooksListParams(WireModel):
    """Working directories, or a loaded thread."""

    cwds: tuple[PathText, ...] = ()
    """Working directories; none for that of the server. Hooks that the `config` of a thread gives are not among those
    of its directory.
    """
    thread_id: str | None = None
    """A thread instead of directories: its own hooks and consent count, too."""


class HooksListResponse(WireStruct):
    data: tuple[HooksListEntry, ...]


HOOKS_LIST: Final = ClientRequest(
    "hooks/list",
    HooksListParams,
    HooksListResponse,
    "The hooks for each working directory, and whether the user has agreed to them.",
)
