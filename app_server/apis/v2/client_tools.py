"""Tools that a client describes when it starts a thread, as the engine keeps them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from app_server.rpc.errors import invalid_request
from protocol.engine.client_tools import ClientTool
from protocol.v2.thread_open import (
    DynamicToolSpec,
    FunctionDynamicToolNamespaceTool,
    FunctionDynamicToolSpec,
    NamespaceDynamicToolSpec,
)


def client_tools(specs: Sequence[DynamicToolSpec]) -> tuple[ClientTool, ...]:
    """All of them, without the groups. Every tool is offered from the beginning, also one that may be loaded later.
    Raises RpcError for an empty group.
    """
    return tuple(tool for spec in specs for tool in _tools(spec))


def _tools(spec: DynamicToolSpec) -> Iterator[ClientTool]:
    match spec:
        case FunctionDynamicToolSpec():
            yield _tool(spec, None)
        case NamespaceDynamicToolSpec():
            if not spec.tools:
                text = f"dynamic tool namespace must contain at least one tool: {spec.name[:128]}"
                raise invalid_request(text, "invalid_params", "dynamicTools")
            for tool in spec.tools:
                yield _tool(tool, spec.name)


def _tool(
    spec: FunctionDynamicToolSpec | FunctionDynamicToolNamespaceTool, namespace: str | None
) -> ClientTool:
    return ClientTool(
        name=spec.name, namespace=namespace, description=spec.description, input_schema=spec.input_schema
    )
