"""MCP servers for clients: what they offer, calls of tools, resources, starting them anew.

A request that names a thread uses the thread's servers; one that names none starts those of the configuration for as
long as it takes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from types import MappingProxyType

from app_server.apis.services import ConfigSource
from app_server.apis.v2.handlers.mcp_shapes import shown_content, shown_result, shown_server
from app_server.apis.v2.positions import page_by_position
from app_server.apis.v2.thread_ids import parse_thread_id, thread_not_found
from app_server.conversations.live import LiveConversation
from app_server.conversations.manager import ConversationManager
from app_server.core.config.types import Config, McpServerConfig
from app_server.core.mcp.client_access import call_tool, read_resource, running, server_statuses
from app_server.core.mcp.interfaces import McpFailure
from app_server.core.mcp.mcp_manager import McpManager
from app_server.rpc.errors import RpcError, internal_error
from protocol.records import dataclass
from protocol.table import NoParams
from protocol.v2.mcp import (
    ListMcpServerStatusParams,
    ListMcpServerStatusResponse,
    McpResourceReadParams,
    McpResourceReadResponse,
    McpServerRefreshResponse,
    McpServerStatusDetail,
    McpServerToolCallParams,
    McpServerToolCallResponse,
)


@dataclass(frozen=True, slots=True)
class McpContext:
    config: ConfigSource
    conversations: ConversationManager
    servers_alone: Callable[[Config], McpManager]

    def of_thread(self, thread_id: str) -> McpManager:
        """Those of a loaded thread. Raises RpcError."""
        return self._thread(thread_id).session.servers.manager

    @asynccontextmanager
    async def of(self, thread_id: str | None, names: Sequence[str]) -> AsyncIterator[McpManager]:
        """Those of the thread, or else these of the configuration."""
        if thread_id is not None:
            yield self.of_thread(thread_id)
            return
        config = self.config.load()
        chosen = {name: config.mcp_servers[name] for name in names if name in config.mcp_servers}
        alone = self.servers_alone(replace(config, mcp_servers=MappingProxyType(chosen)))
        async with running(alone) as manager:
            yield manager

    def configured(self, thread_id: str | None) -> Mapping[str, McpServerConfig]:
        """Those of the thread, or else those of the configuration."""
        return self.config.load().mcp_servers if thread_id is None else self.of_thread(thread_id).configs

    def names(self, thread_id: str | None) -> list[str]:
        return sorted(self.configured(thread_id))

    def _thread(self, thread_id: str) -> LiveConversation:
        live = self.conversations.find(parse_thread_id(thread_id))
        if live is None:
            raise thread_not_found(thread_id)
        return live


async def mcp_server_status_list(
    context: McpContext, params: ListMcpServerStatusParams
) -> ListMcpServerStatusResponse:
    """Only the servers of the page are started."""
    names = [name for name in context.names(params.thread_id) if params.server_name in (None, name)]
    page, next_cursor = page_by_position(names, params.cursor, params.limit)
    full = params.detail is not McpServerStatusDetail.TOOLS_AND_AUTH_ONLY
    async with context.of(params.thread_id, page) as manager:
        found = await server_statuses(manager, page, with_resources=full)
    return ListMcpServerStatusResponse(
        data=tuple(shown_server(each, of_thread=params.thread_id is not None) for each in found),
        next_cursor=next_cursor,
    )


async def mcp_server_tool_call(
    context: McpContext, params: McpServerToolCallParams
) -> McpServerToolCallResponse:
    """Without a question: the client is who would be asked."""
    manager = context.of_thread(params.thread_id)
    try:
        result = await call_tool(manager, params.server, params.tool, params.arguments, params.meta)
    except McpFailure as failure:
        raise _failed(failure) from failure
    return shown_result(result)


async def mcp_server_resource_read(
    context: McpContext, params: McpResourceReadParams
) -> McpResourceReadResponse:
    async with context.of(params.thread_id, [params.server]) as manager:
        try:
            contents = await read_resource(manager, params.server, params.uri)
        except McpFailure as failure:
            raise _failed(failure) from failure
    return McpResourceReadResponse(
        contents=tuple(shown_content(each) for each in contents), origin_call_id=params.origin_call_id
    )


async def config_mcp_server_reload(context: McpContext, params: NoParams) -> McpServerRefreshResponse:
    """All threads or, where the settings of one cannot be read any more, none. Raises ConfigError."""
    live = context.conversations.all()
    configs = [context.config.load(each.session.facts.config.request) for each in live]
    for each, config in zip(live, configs, strict=True):
        each.session.servers.reload(config.mcp_servers)
    return McpServerRefreshResponse()


def _failed(failure: McpFailure) -> RpcError:
    return internal_error(str(failure), "mcp")
