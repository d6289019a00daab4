"""`initialize` and `getUserAgent`."""

from __future__ import annotations

from app_server.apis.handshake import Handshake
from app_server.identity import EarlyInitialize
from protocol.table import NoParams
from protocol.v1.initialize import (
    ClientCapabilities,
    GetUserAgentResponse,
    InitializeParams,
    InitializeResponse,
)


async def initialize(handshake: Handshake, params: InitializeParams) -> InitializeResponse:
    _accept(handshake, params.client_info.name, params.client_info.version, params.capabilities)
    return InitializeResponse(user_agent=handshake.user_agent.text())


def adopt_early_initialize(handshake: Handshake, early: EarlyInitialize) -> None:
    """Adopt an `initialize` that the early handshake has answered."""
    raw = early.capabilities
    capabilities = None if raw is None else ClientCapabilities.model_validate(raw)
    _accept(handshake, early.name, early.version, capabilities)


async def get_user_agent(handshake: Handshake, params: NoParams) -> GetUserAgentResponse:
    return GetUserAgentResponse(user_agent=handshake.user_agent.text())


def _accept(handshake: Handshake, name: str, version: str, capabilities: ClientCapabilities | None) -> None:
    elicitation = capabilities is not None and capabilities.elicitation
    handshake.accept(name, version, elicitation=elicitation)
