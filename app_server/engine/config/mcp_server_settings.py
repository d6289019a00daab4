"""The settings of MCP servers: their values with every default applied, and their part of the table of settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import ClassVar, Final, get_args

import msgspec
from msgspec import Struct

from app_server.engine.config.setting_types import (
    FLAG,
    SECONDS,
    TEXT,
    TEXT_MAP,
    TEXT_SET,
    TEXTS,
    VARIABLES,
    Setting,
    SettingsPart,
    choice,
    integer,
)
from app_server_protocol.values import Redacted

WORKSPACE: Final = "workspace"
"""Value of an MCP server's `cwd` that stands for the folder of the conversation."""


class McpStdioTransport(Redacted, frozen=True, kw_only=True):
    """An MCP server that is a child process."""

    HIDDEN = ("args", "env")
    KEY: ClassVar[str] = "command"
    REACHED: ClassVar[str] = "started by `command`"
    IS_REMOTE: ClassVar[bool] = False
    MAIN_SETTINGS: ClassVar[str] = "its `command`, `args` and `env`"
    address: ClassVar[None] = None
    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = MappingProxyType({})
    env_vars: tuple[str, ...] = ()
    cwd: str | None = None
    """Working directory of the process: an absolute path, or `workspace`; None for a folder of the server's own."""

    def program(self, workspace: str) -> tuple[str, tuple[str, ...]]:
        return workspace if self.cwd == WORKSPACE else self.cwd or "", (self.command, *self.args)

    def credential_variables(self) -> tuple[str | None, ...]:
        """Return none: what the process inherits by `env_vars` need not be a credential."""
        return ()

    def credentials(self) -> Iterator[tuple[str, str]]:
        yield from self.env.items()


class McpLoginSettings(Redacted, frozen=True, kw_only=True):
    """The user's own client at the authorization server of an MCP server."""

    HIDDEN = ("client_secret",)
    client_id: str | None = None
    """Id of a client that is registered beforehand; None if a login registers one."""
    client_secret: str | None = None
    issuer: str | None = None
    """Only authorization server at which the client is used; None for any that the MCP server names."""
    callback_url: str | None = None
    """Address on this machine to which the browser returns; None for the usual one."""


class McpHttpTransport(Redacted, frozen=True, kw_only=True):
    """An MCP server that is reached over streamable HTTP."""

    HIDDEN = ("http_headers",)
    KEY: ClassVar[str] = "url"
    REACHED: ClassVar[str] = "reached by `url`"
    IS_REMOTE: ClassVar[bool] = True
    MAIN_SETTINGS: ClassVar[str] = "its `url` and its token"
    url: str
    login: McpLoginSettings = McpLoginSettings()
    oauth_resource: str | None = None
    """Resource that tokens are requested for; None for the one that the server names."""
    bearer_token_env_var: str | None = None
    http_headers: Mapping[str, str] = MappingProxyType({})
    env_http_headers: Mapping[str, str] = MappingProxyType({})

    @property
    def sends_token(self) -> bool:
        """Whether the settings name the credential that requests to the server carry."""
        headers = {name.lower() for name in (*self.http_headers, *self.env_http_headers)}
        return self.bearer_token_env_var is not None or "authorization" in headers

    @property
    def address(self) -> str:
        return self.url

    def program(self, workspace: str) -> None:
        return None

    def credential_variables(self) -> tuple[str | None, ...]:
        return (self.bearer_token_env_var, *self.env_http_headers.values())

    def credentials(self) -> Iterator[tuple[str, str]]:
        yield from self.http_headers.items()
        if self.login.client_secret:
            yield "client_secret", self.login.client_secret


McpTransportSettings = McpStdioTransport | McpHttpTransport
"""The way to reach an MCP server. Each class says what the rest of the engine asks of any transport; mypy names what a
new class lacks:

- `KEY`: the setting whose presence chooses it; those of the other transports are then refused;
- `REACHED`: how a server with that setting is reached, in the words of such a refusal;
- `IS_REMOTE`: whether the server runs elsewhere: it is told no folders, and `doctor` asks it only with `--online`;
- `MAIN_SETTINGS`: the settings that a user corrects if the server does not start;
- `address`: its URL, of which clients are shown the origin; None if it has none;
- `program`: the folder to which the words of its program are relative (empty if they are not), and that program with
  its arguments, which runs outside of the sandbox; None if none is started here;
- `credential_variables`: environment variables with credentials. No command inherits them;
- `credentials`: configured values that may be credentials, with their names. They are redacted everywhere.
"""

TRANSPORTS: Final[tuple[type[McpTransportSettings], ...]] = get_args(McpTransportSettings)


class McpApproval(StrEnum):
    """Calls of a tool that need the user's consent."""

    AUTO = "auto"
    """Calls of tools that may destroy something or reach the open world, by the hints of the MCP server."""
    PROMPT = "prompt"
    """All calls."""
    WRITES = "writes"
    """Calls of tools without the hint that they only read."""
    APPROVE = "approve"
    """No calls."""


class McpServerConfig(Struct, frozen=True, kw_only=True):
    """One `[mcp_servers.NAME]` table."""

    name: str
    transport: McpTransportSettings
    enabled: bool = True
    startup_timeout_sec: float = 10.0
    tool_timeout_sec: float = 60.0
    enabled_tools: frozenset[str] | None = None
    disabled_tools: frozenset[str] = frozenset()
    approval: McpApproval = McpApproval.AUTO
    tool_approvals: Mapping[str, McpApproval] = msgspec.field(default_factory=lambda: MappingProxyType({}))
    """Approval mode by tool; overrides `approval`."""


MCP_SERVERS: Final[Mapping[SettingsPart, Mapping[str, Setting]]] = {
    SettingsPart("MCP servers", "mcp_servers.NAME", McpStdioTransport): {
        "command": Setting(TEXT, "the program of a server that is started; or give `url`"),
        "args": Setting(TEXTS, "its arguments"),
        "env": Setting(TEXT_MAP, "variables that it gets"),
        "env_vars": Setting(VARIABLES, "names of variables of the server's environment that it gets, too"),
        "cwd": Setting(
            TEXT,
            "the folder in which it starts: an absolute path, or `workspace` for the conversation's, from which"
            " interpreters may take modules and programs; unset: a folder of its own in the home",
        ),
    },
    SettingsPart("MCP servers", "mcp_servers.NAME", McpHttpTransport): {
        "url": Setting(TEXT, "the address of a server that is reached over streamable HTTP"),
        "bearer_token_env_var": Setting(TEXT, "the variable that holds the token for a `url`"),
        "http_headers": Setting(TEXT_MAP, "headers of every request to a `url`"),
        "env_http_headers": Setting(TEXT_MAP, "headers whose values are in these variables"),
        "oauth_resource": Setting(
            TEXT, "the resource that a login at a `url` is for; unset: the one that the server names"
        ),
    },
    SettingsPart("MCP servers", "mcp_servers.NAME.oauth", McpLoginSettings): {
        "client_id": Setting(
            TEXT, "the client that you registered for logins at a `url`; unset: a login registers one"
        ),
        "client_secret": Setting(TEXT, "the secret of that client, if it has one"),
        "authorization_server_issuer": Setting(
            TEXT,
            "the only authorization server at which it may log in; unset: any that the MCP server names",
            "issuer",
        ),
        "callback_url": Setting(
            TEXT,
            "the address of this machine to which the browser returns after a login, as you registered it:"
            " `http://127.0.0.1/PATH`, with a port if that is fixed",
        ),
    },
    SettingsPart("MCP servers", "mcp_servers.NAME", McpServerConfig): {
        "enabled": Setting(FLAG, "`false`: it is not started"),
        "startup_timeout_sec": Setting(SECONDS, "so long it may take to start and to list its tools"),
        "startup_timeout_ms": Setting(integer(1), "an older form of `startup_timeout_sec`", None),
        "tool_timeout_sec": Setting(SECONDS, "so long one call may take"),
        "enabled_tools": Setting(TEXT_SET, "the only tools that the model is offered; unset: all"),
        "disabled_tools": Setting(TEXT_SET, "tools that the model is not offered"),
        "default_tools_approval_mode": Setting(
            choice(McpApproval), "which calls the user is asked about", "approval"
        ),
    },
    SettingsPart("MCP servers", "mcp_servers.NAME.tools.TOOL"): {
        "approval_mode": Setting(choice(McpApproval), "the same for one tool", None),
    },
}
"""The rows of the table of settings."""
