"""Hooks as clients see them: what each of them runs, and whether the user has agreed to it. Writing settings
(`config/value/write`) is how a client records that the user agrees.
"""

from __future__ import annotations

from app_server.engine.config.config_values import Config, RequestOverrides
from app_server.engine.hooks.hook_definitions import HookHandler, HookTrust
from app_server.engine.hooks.listed_hooks import ListedHooks
from app_server.engine.support.engine_errors import ConfigError
from app_server.server.apis.contexts import ConnectionContext
from app_server.server.apis.router import Route, route
from app_server.server.apis.v2.open_threads import find_open
from app_server_protocol.encoding import Json
from app_server_protocol.engine.hook_events import HookHandlerType
from app_server_protocol.rpc_errors import invalid_field
from app_server_protocol.v2 import hook_listing as wire

MAX_DIRECTORIES = 100
"""Maximum number of directories in one request."""


async def hooks_list(context: ConnectionContext, params: wire.HooksListParams) -> wire.HooksListResponse:
    thread_id, cwds = params.thread_id, params.cwds
    if thread_id is not None:
        if cwds:
            raise invalid_field("specify either threadId or cwds", "cwds")
        cwds = (find_open(context, thread_id).session.facts.settings.cwd,)
    cwds = cwds or (str(context.config.cwd),)
    if len(cwds) > MAX_DIRECTORIES:
        raise invalid_field(f"at most {MAX_DIRECTORIES} directories at once", "cwds")
    return wire.HooksListResponse(data=tuple([await _entry(context, cwd, thread_id) for cwd in cwds]))


async def _entry(context: ConnectionContext, cwd: str, thread_id: str | None) -> wire.HooksListEntry:
    folder = str(context.config.cwd / cwd)
    try:
        listed = context.own.get(ListedHooks, ListedHooks)
        hooks = await listed.list(_config_of(context, cwd, thread_id), folder, context.config)
    except ConfigError as error:
        mistake = wire.HookErrorInfo(path=folder, message=str(error))
        return wire.HooksListEntry(cwd=cwd, hooks=(), warnings=(), errors=(mistake,))
    return wire.HooksListEntry(
        cwd=cwd,
        hooks=tuple(map(_shown, hooks.handlers())),
        warnings=hooks.warnings,
        errors=tuple(wire.HookErrorInfo(path=each.path, message=each.message) for each in hooks.problems),
    )


def _config_of(context: ConnectionContext, cwd: str, thread_id: str | None) -> Config:
    """Return the configuration of a thread, or of a new one in a directory. Raises ConfigError."""
    if thread_id is None:
        return context.config.load(RequestOverrides.in_folder(cwd))
    return find_open(context, thread_id).session.facts.config


def _shown(handler: HookHandler) -> wire.HookMetadata:
    definition = handler.definition
    common: dict[str, Json] = {
        "key": handler.key,
        "event_name": handler.event.camel,
        "matcher": definition.matcher,
        "timeout_sec": definition.timeout,
        "status_message": definition.status_message,
        "additional_context_limit": definition.additional_context_limit,
        "source_path": handler.source_path,
        "source": handler.source.value,
        "display_order": handler.display_order,
        "enabled": handler.enabled,
        "is_managed": False,
        "current_hash": handler.digest,
        "trust_status": ("modified" if handler.trust is HookTrust.LAPSED else handler.trust.value),
    }
    match definition.type:
        case HookHandlerType.MCP_TOOL:
            server, tool = definition.mcp_tool or ("", "")
            return wire.McpToolHookMetadata(server=server, tool=tool, **common)
        case HookHandlerType.PROMPT:
            return wire.PromptHookMetadata(**common)
        case HookHandlerType.AGENT:
            return wire.AgentHookMetadata(**common)
        case _:
            return wire.CommandHookMetadata(
                command=definition.command, is_async=definition.is_async, **common
            )


def routes(context: ConnectionContext) -> tuple[Route, ...]:
    return (route(wire.HOOKS_LIST, hooks_list, context),)
