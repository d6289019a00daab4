"""User messages, interrupts, and the extension that submits any operation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from app_server.apis.v1 import inbound
from app_server.conversations.manager import ConversationManager
from app_server.core.session.commands import Interrupt
from protocol.events.turn import TurnAbortReason
from protocol.items import ImageInput, LocalImageInput, TextInput, UserInput
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


async def send_user_message(
    conversations: ConversationManager, params: SendUserMessageParams
) -> SendUserMessageResponse:
    await inbound.say(conversations.get(params.conversation_id).session, user_items(params.items))
    return SendUserMessageResponse()


async def send_user_turn(
    conversations: ConversationManager, params: SendUserTurnParams
) -> SendUserTurnResponse:
    session = conversations.get(params.conversation_id).session
    await inbound.say(session, user_items(params.items), inbound.settings(params))
    return SendUserTurnResponse()


async def interrupt_conversation(
    conversations: ConversationManager, params: InterruptConversationParams
) -> InterruptConversationResponse:
    """Responds once what runs has ended; at once where nothing does."""
    session = conversations.get(params.conversation_id).session
    session.do(Interrupt())
    await session.settled()
    return InterruptConversationResponse(abort_reason=TurnAbortReason.INTERRUPTED)


async def submit(conversations: ConversationManager, params: SubmitParams) -> SubmitResponse:
    session = conversations.get(params.conversation_id).session
    return SubmitResponse(submission_id=await inbound.submit(session, params.op))
