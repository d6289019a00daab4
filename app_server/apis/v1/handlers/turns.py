"""User messages, interrupts, and the extension that submits any operation: parameters become operations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar, assert_never

from app_server.apis.route import HandlerResult
from app_server.conversations.live import LiveConversation
from app_server.conversations.manager import ConversationManager
from app_server.core.config.fence import check_permissions
from app_server.core.turn.settings import SettingsChange, or_unset
from protocol.events.turn import TurnAbortReason
from protocol.items import ImageInput, LocalImageInput, TextInput, UserInput
from protocol.ops import Op, OverrideTurnContextOp, UserInputOp, UserTurnOp
from protocol.structs import Written
from protocol.v1.turn import (
    ImageInputItem,
    InputItem,
    InterruptConversationParams,
    InterruptConversationResponse,
    LocalImageInputItem,
    SendUserMessageParams,
    SendUserMessageResponse,
    SendUserTurnParams,
    SendUserTurnResponse,
    SubmitParams,
    SubmitResponse,
    TextInputItem,
)


def user_input(params: SendUserMessageParams) -> UserInputOp:
    return UserInputOp(items=user_items(params.items))


def user_turn(params: SendUserTurnParams) -> UserTurnOp:
    return UserTurnOp(
        items=user_items(params.items),
        cwd=params.cwd,
        approval_policy=params.approval_policy,
        sandbox_policy=params.sandbox_policy,
        model=params.model,
        effort=params.effort,
        summary=params.summary,
    )


def user_items(items: Sequence[InputItem]) -> tuple[UserInput, ...]:
    return tuple(_item(item) for item in items)


def _item(item: InputItem) -> UserInput:
    match item:
        case TextInputItem():
            return TextInput(text=item.data.text)
        case ImageInputItem():
            return ImageInput(image_url=item.data.image_url)
        case LocalImageInputItem():
            return LocalImageInput(path=item.data.path)
        case _:
            assert_never(item)


R = TypeVar("R", bound=Written)


async def send_user_message(
    conversations: ConversationManager, params: SendUserMessageParams
) -> HandlerResult[SendUserMessageResponse]:
    return _respond_then_submit(
        conversations, params.conversation_id, user_input(params), SendUserMessageResponse()
    )


async def send_user_turn(
    conversations: ConversationManager, params: SendUserTurnParams
) -> HandlerResult[SendUserTurnResponse]:
    return _respond_then_submit(
        conversations, params.conversation_id, user_turn(params), SendUserTurnResponse()
    )


async def interrupt_conversation(
    conversations: ConversationManager, params: InterruptConversationParams
) -> InterruptConversationResponse:
    """Responds once no turn is running."""
    await conversations.get(params.conversation_id).interrupt()
    return InterruptConversationResponse(abort_reason=TurnAbortReason.INTERRUPTED)


async def submit(conversations: ConversationManager, params: SubmitParams) -> SubmitResponse:
    live = conversations.get(params.conversation_id)
    _check_rights(live, params.op)
    return SubmitResponse(submission_id=live.submit(params.op))


def _respond_then_submit(conversations: ConversationManager, id: str, op: Op, result: R) -> HandlerResult[R]:
    live = conversations.get(id)
    _check_rights(live, op)

    async def submit_op() -> None:
        live.submit(op)

    return HandlerResult(result, submit_op)


def _check_rights(live: LiveConversation, op: Op) -> None:
    """Raises BeyondClientRights where the settings of an operation give more than the user leaves to clients."""
    if isinstance(op, UserTurnOp | OverrideTurnContextOp):
        change = SettingsChange(
            cwd=or_unset(op.cwd),
            approval_policy=or_unset(op.approval_policy),
            sandbox_policy=or_unset(op.sandbox_policy),
        )
        facts = live.session.facts
        after = facts.settings.changed(change)
        check_permissions(facts.config.fence, after, after.cwd)
