"""Clients as the engine sees them, for tests of its parts."""

from __future__ import annotations

from collections.abc import Mapping

from app_server.engine.client_context import ClientContext, ClientIdentity


def some_caller(environment: Mapping[str, str] | None = None, originator: str = "test") -> ClientContext:
    """Return a client that answers questions of MCP servers."""
    identity = ClientIdentity(originator, f"{originator}/1")
    return ClientContext(environment=environment, identity=lambda: identity, elicitation=lambda: True)
