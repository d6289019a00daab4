"""Saying something, stopping it, and the extension that submits any operation."""

from __future__ import annotations

from app_server.handlers.context import HandlerContext
from app_server.handlers.then import Answer
from app_server.projection.inbound import user_input, user_turn
from protocol.events.turn import TurnAbortReason
from protocol.ops import Op
from protocol.v1.turn import (
    InterruptConversationParams,
    InterruptConversationResponse,
    SendUserMessageParams,
    SendUserMessageResponse,
    SendUserTurnParams,
    SendUserTurnResponse,
    SubmitParams,
    SubmitResponse,
)


async def send_user_message(context: HandlerContext, params: SendUserMessageParams) -> Answer:
    return _answer_then_submit(context, params.conversation_id, user_input(params), SendUserMessageResponse())


async def send_user_turn(context: HandlerContext, params: SendUserTurnParams) -> Answer:
    return _answer_then_submit(context, params.conversation_id, user_turn(params), SendUserTurnResponse())


async def interrupt_conversation(
    context: HandlerContext, params: InterruptConversationParams
) -> InterruptConversationResponse:
    """Answered once nothing runs any more, at once where nothing did."""
    await context.manager.get(params.conversation_id).interrupt()
    return InterruptConversationResponse(abort_reason=TurnAbortReason.INTERRUPTED)


async def submit(context: HandlerContext, params: SubmitParams) -> SubmitResponse:
    live = context.manager.get(params.conversation_id)
    return SubmitResponse(submission_id=live.submit(params.op))


def _answer_then_submit(
    context: HandlerContext, id: str, op: Op, result: SendUserMessageResponse | SendUserTurnResponse
) -> Answer:
    live = context.manager.get(id)

    async def then() -> None:
        live.submit(op)

    return Answer(result, then)
