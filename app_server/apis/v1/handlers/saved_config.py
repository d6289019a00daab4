"""The user's saved settings."""

from __future__ import annotations

from dataclasses import asdict, replace

from app_server.apis.services import ConfigSource
from app_server.apis.v1.efforts import nearest_effort
from app_server.core.config.rewrite import set_default_model as write_default_model
from app_server.core.config.saved import load_saved_config
from app_server.core.threads import run_in_thread
from protocol.table import NoParams
from protocol.v1.config import (
    GetUserSavedConfigResponse,
    SetDefaultModelParams,
    SetDefaultModelResponse,
    UserSavedConfig,
)


async def get_user_saved_config(config: ConfigSource, params: NoParams) -> GetUserSavedConfigResponse:
    saved = load_saved_config(config.home)
    shown = replace(
        saved,
        model_reasoning_effort=nearest_effort(saved.model_reasoning_effort),
        profiles={
            name: replace(each, model_reasoning_effort=nearest_effort(each.model_reasoning_effort))
            for name, each in saved.profiles.items()
        },
    )
    return GetUserSavedConfigResponse(config=UserSavedConfig.model_validate(asdict(shown)))


async def set_default_model(config: ConfigSource, params: SetDefaultModelParams) -> SetDefaultModelResponse:
    await run_in_thread(write_default_model, config.home, params.model, params.reasoning_effort)
    return SetDefaultModelResponse()
