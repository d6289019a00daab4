"""`app-server mcp`: lists, adds and removes the MCP servers of `config.toml`."""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Mapping
from typing import Final

from app_server.cli.admin.one_shot import CommandFailed, Run, eprint, one_shot, show, show_json
from app_server.client.command_line import InvalidCommandLine
from app_server.client.request_client import RequestClient
from app_server_protocol.encoding import Json
from app_server_protocol.v2 import mcp as wire
from app_server_protocol.v2.config import (
    CONFIG_READ,
    CONFIG_VALUE_WRITE,
    ConfigReadParams,
    ConfigValueWriteParams,
)

SEE_LIST = "`app-server mcp list` shows which there are"


async def list_servers(server: RequestClient, args: argparse.Namespace) -> None:
    """List the configured servers; with `--start`, also the tools that they offer."""
    configured = await _configured(server)
    offered = {each.name: each for each in await _statuses(server)} if args.start else {}
    if args.json:
        show_json([as_json(name, settings, offered.get(name)) for name, settings in configured.items()])
        return
    for name, settings in configured.items():
        show(f"{name:<16} {shown_transport(settings)}")
        if name in offered:
            show(f"{'':<16} {_offer(offered[name])}")
    if not configured:
        eprint("no MCP server is configured")


async def add_server(server: RequestClient, args: argparse.Namespace) -> None:
    settings = _settings(args)
    if args.name in await _configured(server):
        raise CommandFailed(
            f"there is an MCP server {args.name!r} already",
            f"remove it first: `app-server mcp remove {args.name}`",
        )
    await _write(server, args.name, settings)
    eprint(f"added {args.name}; threads that begin from now on have it")


async def remove_server(server: RequestClient, args: argparse.Namespace) -> None:
    if args.name not in await _configured(server):
        raise CommandFailed(f"there is no MCP server {args.name!r}", SEE_LIST)
    await _write(server, args.name, None)
    eprint(f"removed {args.name}")


def _settings(args: argparse.Namespace) -> Json:
    """Return the settings of a new server. Raises InvalidCommandLine."""
    if (args.url is None) == (not args.server):
        raise InvalidCommandLine("expected either --url URL or -- COMMAND [ARG...]")
    if args.url is not None:
        if args.env:
            raise InvalidCommandLine("--env is for servers that are started by a command")
        token = (
            {} if args.bearer_token_env_var is None else {"bearer_token_env_var": args.bearer_token_env_var}
        )
        return {"url": args.url, **token}
    if args.bearer_token_env_var is not None:
        raise InvalidCommandLine("--bearer-token-env-var is for servers with --url")
    program, *arguments = args.server
    if shutil.which(program) is None:
        raise InvalidCommandLine(f"there is no program {program!r}", "install it, or name it with its folder")
    environment = {"env": dict(args.env)} if args.env else {}
    return {"command": program, **({"args": arguments} if arguments else {}), **environment}


async def _configured(server: RequestClient) -> Mapping[str, Mapping[str, Json]]:
    """Return the settings of the servers, without secrets, by name."""
    config = (await server.request(CONFIG_READ, ConfigReadParams())).config.to_value()
    servers: Mapping[str, Mapping[str, Json]] = config.get("mcp_servers") or {}
    return servers


async def _write(server: RequestClient, name: str, settings: Json) -> None:
    """Write the settings of a server; None removes it. The server refuses settings with which no thread could begin."""
    key = f"mcp_servers.{json.dumps(name)}"  # the user may have written a name with a dot by hand
    params = ConfigValueWriteParams(key_path=key, value=settings, merge_strategy="replace")
    await server.request(CONFIG_VALUE_WRITE, params)


async def _statuses(server: RequestClient) -> list[wire.McpServerStatus]:
    params = wire.ListMcpServerStatusParams(detail="toolsAndAuthOnly")
    return [
        status async for page in server.pages(wire.MCP_SERVER_STATUS_LIST, params) for status in page.data
    ]


def as_json(name: str, settings: Mapping[str, Json], status: wire.McpServerStatus | None) -> Json:
    """Return a server in the form that scripts know from codex. `started` is present if it was started."""
    get = settings.get
    if "url" in settings:
        keys = ("url", "bearer_token_env_var", "http_headers", "env_http_headers")
        transport: dict[str, Json] = {"type": "streamable_http", **{key: get(key) for key in keys}}
    else:
        transport = {
            "type": "stdio",
            "command": get("command"),
            "args": get("args") or [],
            "env": get("env"),
            "env_vars": get("env_vars") or [],
            "cwd": get("cwd"),
        }
    shown: dict[str, Json] = {
        "name": name,
        "enabled": get("enabled", True),
        "disabled_reason": None,
        "transport": transport,
        "startup_timeout_sec": get("startup_timeout_sec"),
        "tool_timeout_sec": get("tool_timeout_sec"),
        "auth_status": "bearer_token" if get("bearer_token_env_var") else "unsupported",
    }
    return shown if status is None else {**shown, "started": status.to_value()}


def shown_transport(settings: Mapping[str, Json]) -> str:
    """Return how a server is reached, in one line."""
    off = "" if settings.get("enabled", True) else " (disabled)"
    if "url" in settings:
        return f"{settings['url']}{off}"
    return " ".join([str(settings.get("command")), *map(str, settings.get("args") or ())]) + off


def _offer(status: wire.McpServerStatus) -> str:
    if status.tools_error is not None:
        return f"did not start: {status.tools_error}"
    tools = ", ".join(sorted(status.tools)) or "no tools"
    login = " (not logged in)" if status.auth_status is wire.McpAuthStatus.NOT_LOGGED_IN else ""
    return f"{tools}{login}"


COMMANDS: Final[Mapping[str, Run]] = {
    "mcp list": one_shot(list_servers),
    "mcp add": one_shot(add_server),
    "mcp remove": one_shot(remove_server),
}
