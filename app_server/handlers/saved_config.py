"""The user's saved settings."""

from __future__ import annotations

from dataclasses import asdict

from app_server.core.config.edit import set_default_model as write_default_model
from app_server.core.config.saved import load_saved_config
from app_server.core.threads import run_in_thread
from app_server.handlers.context import HandlerContext
from protocol.methods import NoParams
from protocol.v1.config import (
    GetUserSavedConfigResponse,
    SetDefaultModelParams,
    SetDefaultModelResponse,
    UserSavedConfig,
)


async def get_user_saved_config(context: HandlerContext, params: NoParams) -> GetUserSavedConfigResponse:
    saved = load_saved_config(context.home)
    return GetUserSavedConfigResponse(config=UserSavedConfig.model_validate(asdict(saved)))


async def set_default_model(
    context: HandlerContext, params: SetDefaultModelParams
) -> SetDefaultModelResponse:
    await run_in_thread(write_default_model, context.home, params.model, params.reasoning_effort)
    return SetDefaultModelResponse()
