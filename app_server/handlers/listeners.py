"""Subscribing to a conversation's events."""

from __future__ import annotations

from app_server.handlers.context import HandlerContext
from app_server.handlers.then import Answer
from protocol.v1.conversation import (
    AddConversationListenerParams,
    AddConversationSubscriptionResponse,
    RemoveConversationListenerParams,
    RemoveConversationSubscriptionResponse,
)


async def add_conversation_listener(context: HandlerContext, params: AddConversationListenerParams) -> Answer:
    """Events that have waited for a listener begin to flow after the answer."""
    live = context.manager.get(params.conversation_id)
    id = context.new_id()

    async def then() -> None:
        context.manager.subscribe(live, id, raw=params.experimental_raw_events)

    return Answer(AddConversationSubscriptionResponse(subscription_id=id), then)


async def remove_conversation_listener(
    context: HandlerContext, params: RemoveConversationListenerParams
) -> RemoveConversationSubscriptionResponse:
    context.manager.unsubscribe(params.subscription_id)
    return RemoveConversationSubscriptionResponse()
