"""All MCP servers of one conversation: starts them in the background and combines their tools and resources.

The session owns the manager: `run_servers` is a task of its group, and cancelling that task ends every server. The
manager emits no events and knows no turns; calls return values. Where the settings of a server want it, the user is
asked before a call of the model.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

import anyio

from app_server.core.config.types import McpApproval, McpHttpTransport, McpServerConfig
from app_server.core.lazy import Lazy
from app_server.core.mcp.faults import MAX_RESOURCES, UNEXPECTED, StartFailure, tool_call_error
from app_server.core.mcp.interfaces import Elicit, ElicitationRequest, McpFailure, McpRuntime
from app_server.core.mcp.launch import sends_token
from app_server.core.mcp.mcp_client import McpRequestFailed, entries
from app_server.core.mcp.offer import McpTool, model_tools
from app_server.core.mcp.resources import (
    LIST_RESOURCES,
    LIST_TEMPLATES,
    READ_RESOURCE,
    ListArguments,
    ReadArguments,
    check_cursor,
    parse_contents,
    parse_resources,
    parse_templates,
    read_output,
    resources_output,
    templates_output,
)
from app_server.core.mcp.results import McpCallOutcome, parse_result
from app_server.core.threads import run_in_thread
from protocol.base import Json
from protocol.events.tools import McpListToolsResponseEvent
from protocol.mcp import CallToolResult, McpAuthStatus, McpInvocation, Resource, ResourceTemplate
from protocol.message_outline import nested_too_deeply

if TYPE_CHECKING:
    from app_server.core.mcp.mcp_server import McpServer

APPROVAL_KIND = "mcp_tool_call"
"""By which clients distinguish this question from those of the server itself."""


def needs_approval(config: McpServerConfig, tool: McpTool) -> bool:
    """A tool is taken to write unless the server says that it only reads."""
    match config.tool_approvals.get(tool.tool, config.approval):
        case McpApproval.PROMPT:
            return True
        case McpApproval.WRITES:
            annotations = tool.definition.annotations
            return annotations is None or annotations.read_only_hint is not True
        case McpApproval.AUTO | McpApproval.APPROVE:
            return False


async def is_approved(elicit: Elicit | None, tool: McpTool, arguments: Json) -> bool:
    """Nothing but a plain yes approves; where nobody can be asked, nobody does."""
    if elicit is None:
        return False
    meta = {"codex_approval_kind": APPROVAL_KIND, "tool_params": {} if arguments is None else arguments}
    message = f"Allow the MCP server `{tool.server}` to run the tool `{tool.tool}`?"
    answer = await elicit(ElicitationRequest(tool.server, message, meta=meta, is_approval=True))
    return answer.action == "accept"


READY_GRACE_SECONDS = 2.0
"""Time beyond a server's startup limit for its orderly end."""


class McpManager:
    """The servers of one conversation."""

    def __init__(
        self,
        servers: Mapping[str, McpServerConfig],
        runtime: McpRuntime,
        reserved_names: Callable[[], Collection[str]] = tuple,
    ) -> None:
        """`reserved_names` gives the names of built-in tools, which are not available for servers' tools."""
        self._runtime = runtime
        self._reserved_names = reserved_names
        self._use(servers)
        self._scope = anyio.CancelScope()
        self.started = False
        """Whether `run_servers` was called."""
        self._closing = False
        self._ended = anyio.Event()

    def _use(self, servers: Mapping[str, McpServerConfig]) -> None:
        self.configs = dict(sorted(servers.items()))
        self.servers = {
            name: _MCP_SERVER.get()(config, self._runtime)
            for name, config in self.configs.items()
            if config.enabled
        }
        """Those that are enabled."""
        self._tools: dict[str, McpTool] | None = None
        self._notices: tuple[str, ...] = ()

    @property
    def configured(self) -> bool:
        """Whether any server is enabled."""
        return bool(self.servers)

    async def run_servers(self) -> None:
        """Starts every server at once and serves them until cancelled or closed; others after `reload`."""
        self.started = True
        try:
            while not self._closing:
                with anyio.CancelScope() as self._scope:
                    async with anyio.create_task_group() as group:
                        for server in self.servers.values():
                            group.start_soon(server.run_server, name=f"mcp {server.config.name}")
                        await anyio.sleep_forever()
        finally:
            self._ended.set()

    def reload(self, servers: Mapping[str, McpServerConfig]) -> None:
        """Ends every server; those that are given here are started once all processes have exited."""
        for server in self.servers.values():
            server.replaced()
        self._use(servers)
        self._scope.cancel()

    async def close(self) -> None:
        """Ends every server and waits for the exit of their processes. For the owner of `run_servers`."""
        self._closing = True
        self._scope.cancel()
        if self.started:
            await self._ended.wait()

    async def ready(self) -> None:
        """Waits until every server has started or failed to, each within its own limit."""
        limits = [server.config.startup_timeout_sec for server in self.servers.values()]
        with anyio.move_on_after(max(limits, default=0.0) + READY_GRACE_SECONDS):
            for server in self.servers.values():
                await server.settled.wait()

    def failures(self) -> tuple[StartFailure, ...]:
        """Servers that failed to start, so far."""
        return tuple(server.failure for server in self.servers.values() if server.failure is not None)

    def notices(self) -> tuple[str, ...]:
        """Other messages for the user about the servers, so far: omitted tools."""
        self.tools()
        return tuple(text for server in self.servers.values() for text in server.notices) + self._notices

    def tools(self) -> Mapping[str, McpTool]:
        """The tools for the model by qualified name, sorted. The result is final once all servers are ready."""
        if self._tools is not None:
            return self._tools
        offered = [tool for server in self.servers.values() for tool in server.tools]
        reserved = frozenset(self._reserved_names() if offered else ())
        tools, self._notices = model_tools(offered, reserved)
        if all(server.settled.is_set() for server in self.servers.values()):
            self._tools = tools
        return tools

    def invocation(self, name: str, arguments: Json) -> McpInvocation | None:
        """For the begin and end events of a call; None if there is no such tool."""
        tool = self.tools().get(name)
        return (
            None if tool is None else McpInvocation(server=tool.server, tool=tool.tool, arguments=arguments)
        )

    async def call(self, name: str, arguments: Json) -> McpCallOutcome:
        """Calls a tool by its qualified name. The outcome includes any error."""
        begun = anyio.current_time()
        tool = self.tools().get(name)
        result: CallToolResult | None = None
        error: str | None = f"unsupported call: {name}"
        if tool is not None:
            try:
                result, error = await self._call(tool, arguments), None
            except McpRequestFailed as failed:
                error = tool_call_error(tool.server, tool.tool, failed.causes)
        return McpCallOutcome(result, error, anyio.current_time() - begun)

    async def list_resources(self, arguments: ListArguments) -> str:
        """The output of `list_mcp_resources`. Raises McpFailure with the text for the model."""
        check_cursor(arguments)
        if arguments.server is None:
            every = await self.all_resources()
            return resources_output(None, [(name, one) for name, found in every.items() for one in found])
        raw, cursor = await self._page(arguments, LIST_RESOURCES, "resources")
        found = parse_resources(raw)
        return resources_output(arguments.server, [(arguments.server, one) for one in found], cursor)

    async def list_templates(self, arguments: ListArguments) -> str:
        """The output of `list_mcp_resource_templates`. Raises McpFailure with the text for the model."""
        check_cursor(arguments)
        if arguments.server is None:
            every = await self.all_templates()
            return templates_output(None, [(name, one) for name, found in every.items() for one in found])
        raw, cursor = await self._page(arguments, LIST_TEMPLATES, "resourceTemplates")
        found = parse_templates(raw)
        return templates_output(arguments.server, [(arguments.server, one) for one in found], cursor)

    async def read_resource(self, arguments: ReadArguments) -> str:
        """The output of `read_mcp_resource`. Raises McpFailure with the text for the model."""
        server, uri = arguments.server, arguments.uri
        try:
            result = await self._server(server, READ_RESOURCE).request(READ_RESOURCE, {"uri": uri})
            contents = parse_contents(entries(READ_RESOURCE, result, "contents"))
        except McpRequestFailed as error:
            raise McpFailure(
                f"{READ_RESOURCE} failed: {READ_RESOURCE} failed for `{server}` ({uri}): {error}"
            ) from error
        return read_output(server, uri, contents)

    async def all_resources(self) -> dict[str, tuple[Resource, ...]]:
        """The resources of every server; a server that fails has none."""
        raw = await self._collect_all(LIST_RESOURCES, "resources")
        return {name: parse_resources(found) for name, found in raw.items()}

    async def all_templates(self) -> dict[str, tuple[ResourceTemplate, ...]]:
        raw = await self._collect_all(LIST_TEMPLATES, "resourceTemplates")
        return {name: parse_templates(found) for name, found in raw.items()}

    def auth_statuses(self) -> dict[str, McpAuthStatus]:
        """Whether each configured server requires a login."""
        return {name: self._auth_status(name, config) for name, config in self.configs.items()}

    async def snapshot(self) -> McpListToolsResponseEvent:
        """Tools, resources and login states of all servers, for clients."""
        await self.ready()
        return McpListToolsResponseEvent(
            tools={name: tool.definition for name, tool in self.tools().items()},
            resources=await self.all_resources(),
            resource_templates=await self.all_templates(),
            auth_statuses=self.auth_statuses(),
        )

    async def _call(self, tool: McpTool, arguments: Json) -> CallToolResult:
        if arguments is not None and not isinstance(arguments, dict):
            raise McpRequestFailed(f"invalid type: {_kind(arguments)}, expected a map")
        if nested_too_deeply(arguments):
            raise McpRequestFailed("the arguments are nested too deeply")
        if needs_approval(self.configs[tool.server], tool) and not await is_approved(
            self._runtime.elicit, tool, arguments
        ):
            raise McpRequestFailed("the user did not allow this call")
        params = {"name": tool.tool} | ({} if arguments is None else {"arguments": arguments})
        raw = await self.servers[tool.server].request("tools/call", params)
        result = await run_in_thread(parse_result, raw)
        if result is None:
            raise McpRequestFailed(f"tools/call failed: {UNEXPECTED}")
        return result

    async def _page(self, arguments: ListArguments, method: str, key: str) -> tuple[list[Json], str | None]:
        assert arguments.server is not None
        params = {} if arguments.cursor is None else {"cursor": arguments.cursor}
        try:
            result = await self._server(arguments.server, method).request(method, params)
            found = entries(method, result, key)
        except McpRequestFailed as error:
            raise McpFailure(f"{method} failed: {method} failed for `{arguments.server}`: {error}") from error
        cursor = result.get("nextCursor")
        return found[:MAX_RESOURCES], cursor if isinstance(cursor, str) else None

    async def _collect_all(self, method: str, key: str) -> dict[str, list[Json]]:
        found: dict[str, list[Json]] = {}

        async def collect(name: str, server: McpServer) -> None:
            try:
                found[name] = await server.collect(method, key, MAX_RESOURCES)
            except McpRequestFailed:
                return

        async with anyio.create_task_group() as group:
            for name, server in self.servers.items():
                if server.running and "resources" in server.capabilities:
                    group.start_soon(collect, name, server)
        return dict(sorted(found.items()))

    def _server(self, name: str, method: str) -> McpServer:
        server = self.servers.get(name)
        if server is None or not server.running:
            raise McpFailure(f"{method} failed: unknown MCP server '{name}'")
        return server

    def _auth_status(self, name: str, config: McpServerConfig) -> McpAuthStatus:
        if not isinstance(config.transport, McpHttpTransport):
            return McpAuthStatus.UNSUPPORTED
        server = self.servers.get(name)
        if server is not None and server.failure is not None and server.failure.auth_required:
            return McpAuthStatus.NOT_LOGGED_IN
        if sends_token(config.transport):
            return McpAuthStatus.BEARER_TOKEN
        tokens = self._runtime.tokens
        logged_in = tokens is not None and tokens().has_login(name, config.transport.url)
        return McpAuthStatus.O_AUTH if logged_in else McpAuthStatus.UNSUPPORTED


def _kind(value: Json) -> str:
    match value:
        case bool():
            return f"boolean `{str(value).lower()}`"
        case int():
            return f"integer `{value}`"
        case float():
            return f"floating point `{value}`"
        case str():
            return f"string {value[:40]!r}"
        case _:
            return "sequence"


def _load_mcp_server() -> type[McpServer]:
    """Most conversations have none."""
    from app_server.core.mcp.mcp_server import McpServer  # noqa: PLC0415

    return McpServer


_MCP_SERVER = Lazy(_load_mcp_server)
