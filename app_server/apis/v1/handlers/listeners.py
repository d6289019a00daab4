"""Subscribing to a conversation's events."""

from __future__ import annotations

from collections.abc import Callable

from app_server.apis.result import HandlerResult
from app_server.apis.v1.outbound import ConversationAdapter
from app_server.conversations.manager import ConversationManager
from protocol.records import dataclass
from protocol.v1.conversation import (
    AddConversationListenerParams,
    AddConversationSubscriptionResponse,
    RemoveConversationListenerParams,
    RemoveConversationSubscriptionResponse,
)


@dataclass(frozen=True, slots=True)
class ListenerContext:
    conversations: ConversationManager
    new_id: Callable[[], str]


async def add_conversation_listener(
    context: ListenerContext, params: AddConversationListenerParams
) -> HandlerResult[AddConversationSubscriptionResponse]:
    """Events that waited for a listener are sent after the response."""
    live = context.conversations.get(params.conversation_id)
    id = context.new_id()

    async def subscribe() -> None:
        context.conversations.subscribe(live, id, ConversationAdapter, raw=params.experimental_raw_events)

    return HandlerResult(AddConversationSubscriptionResponse(subscription_id=id), subscribe)


async def remove_conversation_listener(
    context: ListenerContext, params: RemoveConversationListenerParams
) -> RemoveConversationSubscriptionResponse:
    context.conversations.unsubscribe(params.subscription_id)
    return RemoveConversationSubscriptionResponse()
