"""`initialize` and the questions around it."""

from __future__ import annotations

import logging

import anyio
import anyio.lowlevel

from app_server.core.errors import CoreError
from app_server.handlers.context import HandlerContext
from app_server.rpc.errors import invalid_request
from protocol.events.commands import Duration, ExecCommandBeginEvent, ExecCommandEndEvent, UnknownCommand
from protocol.methods import NoParams
from protocol.responses import FunctionCall, FunctionCallOutput, FunctionCallOutputPayload
from protocol.v1.initialize import (
    GetUserAgentResponse,
    InitializeParams,
    InitializeResponse,
    UserInfoResponse,
)

log = logging.getLogger(__name__)

SHAPES_OF_COMMANDS = (
    FunctionCall,
    UnknownCommand,
    ExecCommandBeginEvent,
    Duration,
    ExecCommandEndEvent,
    FunctionCallOutputPayload,
    FunctionCallOutput,
)
"""What the first command would have to wait for, as validators are built on first use."""


QUIET_SECONDS = 0.5
"""So long what a client asks first, as a rule for its stored conversations, has the processor for itself; less where it
opens one.
"""


async def initialize(context: HandlerContext, params: InitializeParams) -> InitializeResponse:
    if context.client.initialized:
        raise invalid_request("Already initialized", "already_initialized")
    context.client.initialized = True
    context.client.elicitation = bool(params.capabilities and params.capabilities.elicitation)
    context.user_agent.introduce(params.client_info.name, params.client_info.version)
    start_warm_up(context)
    return InitializeResponse(user_agent=context.user_agent.text())


def start_warm_up(context: HandlerContext) -> None:
    """Make ready what the first turn needs, without anybody waiting for it."""
    context.background.start_soon(_warm_up_commands, context, name="warm-up of commands")
    context.background.start_soon(_warm_up_engine, context, name="warm-up of the engine")


async def _warm_up_commands(context: HandlerContext) -> None:
    """Other processes do most of it. What fails here the first command meets again, and tells its user."""
    try:
        context.runner.warm_up()
        await context.runner.sandbox_state()
    except (CoreError, OSError) as error:
        log.warning("the sandbox could not be tried ahead of the first command: %s", error)


async def _warm_up_engine(context: HandlerContext) -> None:
    with anyio.move_on_after(QUIET_SECONDS):
        await context.turns_ahead.wait()
    context.background.start_soon(_warm_up_models, context, name="warm-up of models")
    for shape in SHAPES_OF_COMMANDS:
        shape.model_rebuild()
        await anyio.lowlevel.checkpoint()


async def _warm_up_models(context: HandlerContext) -> None:
    try:
        await context.models.warm_up()
    except Exception:  # a conversation that needs them tries again, and tells its client
        log.exception("the engine could not be loaded ahead of the first conversation")


async def get_user_agent(context: HandlerContext, params: NoParams) -> GetUserAgentResponse:
    return GetUserAgentResponse(user_agent=context.user_agent.text())


async def user_info(context: HandlerContext, params: NoParams) -> UserInfoResponse:
    claims = context.auth.identity()
    return UserInfoResponse(alleged_user_email=claims.email if claims else None)
