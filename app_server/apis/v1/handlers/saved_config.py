"""The user's saved settings."""

from __future__ import annotations

from dataclasses import asdict

from app_server.apis.services import ConfigSource
from app_server.core.config.saved import load_saved_config
from app_server.core.config.write import set_default_model as write_default_model
from app_server.core.threads import run_in_thread
from protocol.structs import read
from protocol.table import NoParams
from protocol.v1.config import (
    GetUserSavedConfigResponse,
    SetDefaultModelParams,
    SetDefaultModelResponse,
    UserSavedConfig,
)


async def get_user_saved_config(config: ConfigSource, params: NoParams) -> GetUserSavedConfigResponse:
    saved = load_saved_config(config.home)
    return GetUserSavedConfigResponse(config=read(UserSavedConfig, asdict(saved)))


async def set_default_model(config: ConfigSource, params: SetDefaultModelParams) -> SetDefaultModelResponse:
    await run_in_thread(write_default_model, config.home, params.model, params.reasoning_effort)
    return SetDefaultModelResponse()
