"""`initialize`, one method for all APIs: its result grows with the client's capabilities. And `getUserAgent`."""

from __future__ import annotations

from pathlib import Path

from app_server.apis.capabilities import platform_os
from app_server.apis.handshake import Handshake
from protocol.records import dataclass
from protocol.table import NoParams
from protocol.v1.initialize import (
    GetUserAgentResponse,
    InitializeParams,
    InitializeResponse,
    WideInitializeResponse,
)


@dataclass(frozen=True, slots=True)
class InitializeContext:
    handshake: Handshake
    home: Path


async def initialize(context: InitializeContext, params: InitializeParams) -> InitializeResponse:
    announced = params.capabilities
    raw = (
        None if announced is None else {**(announced.model_extra or {}), "elicitation": announced.elicitation}
    )
    context.handshake.accept_capabilities(params.client_info.name, params.client_info.version, raw)
    user_agent = context.handshake.user_agent.text()
    if announced is None:
        return InitializeResponse(user_agent=user_agent)
    return WideInitializeResponse(
        user_agent=user_agent,
        codex_home=str(context.home),
        platform_family="unix",
        platform_os=platform_os(),
    )


async def get_user_agent(context: InitializeContext, params: NoParams) -> GetUserAgentResponse:
    return GetUserAgentResponse(user_agent=context.handshake.user_agent.text())
