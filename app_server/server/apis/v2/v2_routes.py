"""The routes of the thread API: rows of its table with their handlers. A family of methods, with its shapes and its
handlers, is loaded when the client first uses one of them.
"""

from __future__ import annotations

from typing import Final

from app_server.engine.support.client_info import ClientProfile
from app_server.server.apis.contexts import ConnectionContext
from app_server.server.apis.router import (
    FindRoute,
    HandlerModule,
    HandlerModules,
    Route,
    RouteFamilies,
    experimental,
)
from app_server.server.apis.v2.handlers import (
    account,
    checkpoints,
    client_commands,
    configuration,
    extensions,
    fs,
    hooks,
    mcp_servers,
    models,
    stored_threads,
    thread_operations,
    thread_reads,
    thread_search,
    threads,
    turns,
)
from app_server.server.apis.v2.thread_notifier import (
    NotificationFilter,
    ThreadClients,
    to_client,
    warn_of_callbacks,
    warn_of_settings,
)
from app_server_protocol.base import WireModel
from app_server_protocol.v2.fields import experimental_fields_in_use
from app_server_protocol.v2.settings import GranularAskForApproval

_BY_METHOD: Final[dict[str, HandlerModule]] = {
    "account": account,
    "app": extensions,
    "collaborationMode": configuration,
    "command": client_commands,
    "config": configuration,
    "config/mcpServer": mcp_servers,
    "configRequirements": configuration,
    "experimentalFeature": models,
    "externalAgentConfig": account,
    "fs": fs,
    "fuzzyFileSearch": fs,
    "hooks": hooks,
    "mcpServer": mcp_servers,
    "mcpServerStatus": mcp_servers,
    "model": models,
    "modelProvider": models,
    "modelProvider/default": configuration,
    "permissionProfile": configuration,
    "plugin": extensions,
    "review": thread_operations,
    "skills": extensions,
    "thread": thread_operations,
    "thread/archive": stored_threads,
    "thread/checkpoint": checkpoints,
    "thread/delete": stored_threads,
    "thread/fork": stored_threads,
    "thread/items": thread_reads,
    "thread/list": thread_reads,
    "thread/loaded": thread_reads,
    "thread/metadata": stored_threads,
    "thread/name": stored_threads,
    "thread/read": thread_reads,
    "thread/resume": threads,
    "thread/revert": stored_threads,
    "thread/search": thread_search,
    "thread/start": threads,
    "thread/turns": thread_reads,
    "thread/unarchive": stored_threads,
    "thread/unsubscribe": threads,
    "turn": turns,
    "windowsSandbox": extensions,
}

HANDLERS: Final = HandlerModules(_BY_METHOD, {threads: turns})


def find_route(context: ConnectionContext) -> FindRoute:
    """Return the function that finds the routes of one connection. Its client uses this API from now on, so it is sent
    warnings about the settings.
    """
    client = context.handshake.client
    client.elicitation = True  # clients of this API answer questions of MCP servers
    known = NotificationFilter(context.client)
    context.client.wants = known.wants
    context.shared.get(ThreadClients, ThreadClients).add(context.client)
    known.warnings = warn_of_settings(context.config, to_client(context))
    warn_of_callbacks(context)
    return RouteFamilies[HandlerModule](
        HANDLERS.serving, lambda module: (gated(route, client) for route in module.routes(context))
    ).find


def gated(route: Route, client: ClientProfile) -> Route:
    """Return the route, restricted to parameters that this client has opted in to."""

    def check(params: WireModel) -> None:
        needed = None if client.experimental_api else needed_capability(route.row.method, params)
        if needed is not None:
            raise experimental(needed)

    return route.checked(check)


def needed_capability(method: str, params: WireModel) -> str | None:
    """Return the name that a refusal gives the experimental part of these parameters; None if no part is
    experimental.
    """
    fields = experimental_fields_in_use(params)
    if fields:
        return f"{method}.{fields[0]}"
    if any(isinstance(value, GranularAskForApproval) for value in vars(params).values()):
        return "askForApproval.granular"
    return None
