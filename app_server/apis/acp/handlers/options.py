"""Modes and options of a session."""

from __future__ import annotations

from app_server.apis.acp.errors import invalid_params
from app_server.apis.acp.options import UnknownChoice
from app_server.apis.acp.sessions import Sessions
from protocol.acp.session import (
    SetSessionConfigOptionRequest,
    SetSessionConfigOptionResponse,
    SetSessionModeRequest,
    SetSessionModeResponse,
)
from protocol.structs import read


async def set_mode(sessions: Sessions, params: SetSessionModeRequest) -> SetSessionModeResponse:
    session = sessions.get(params.session_id)
    try:
        session.choose(session.options.with_mode(params.mode_id))
    except UnknownChoice as error:
        raise invalid_params(str(error), "modeId") from None
    return SetSessionModeResponse()


async def set_config_option(
    sessions: Sessions, params: SetSessionConfigOptionRequest
) -> SetSessionConfigOptionResponse:
    session = sessions.get(params.session_id)
    try:
        session.choose(session.options.with_option(params.config_id, params.value))
    except UnknownChoice as error:
        raise invalid_params(str(error), "value") from None
    return read(SetSessionConfigOptionResponse, {"configOptions": session.options.config_options()})
