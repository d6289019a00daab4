"""An open thread as a client of the thread API uses it: how routes find its context, how the client subscribes to it,
and the clients that are notified of it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol

from app_server.server.apis.contexts import ConnectionContext, ConversationContext
from app_server.server.apis.v2 import client_hooks, shared_threads
from app_server.server.apis.v2.thread_notifier import ThreadNotifier, to_client
from app_server.server.apis.v2.v2_errors import parse_thread_id, thread_not_found
from app_server_protocol.v2.items import SERVER_REQUEST_RESOLVED

if TYPE_CHECKING:
    from app_server.server.conversations.adapter import ConversationApi
    from app_server.server.conversations.live import LiveConversation

SUBSCRIPTION = "threads"
"""The one subscription that a client has to a thread over this API."""


class NamesThread(Protocol):
    """Parameters of a method about one thread."""

    @property
    def thread_id(self) -> str: ...


def find_open(context: ConnectionContext, thread_id: str) -> LiveConversation:
    """Return the open thread. Raises RpcError if it is not open."""
    conversations = context.conversations
    live = conversations.find(thread_id) or conversations.find(parse_thread_id(thread_id))
    if live is None:
        raise thread_not_found(thread_id)
    return live


def thread_of(context: ConnectionContext) -> Callable[[NamesThread], ConversationContext]:
    """Return the function that finds the open thread that parameters name, for routes. It raises RpcError if the thread
    is not open.
    """
    return partial(_open_thread, context, shared_threads.thread_api(context))


def _open_thread(
    context: ConnectionContext, api: ConversationApi, params: NamesThread
) -> ConversationContext:
    return ConversationContext(context, find_open(context, params.thread_id), api)


def subscribe(thread: ConversationContext, *, raw: bool = False) -> None:
    """Subscribe the client to all events from now on."""
    thread.live.subscribe(thread.client, SUBSCRIPTION, thread.api, raw=raw)
    offer_callbacks(thread)


def join(thread: ConversationContext) -> None:
    """Subscribe the client, whose answer was made in this step, to the running turn and all that follows."""
    thread.live.join(thread.client, SUBSCRIPTION, thread.api)
    offer_callbacks(thread)


def offer_callbacks(thread: ConversationContext) -> None:
    """Make the callbacks that the client announced hooks of a thread that it follows."""
    if thread.client.profile.hooks is not None:

        def resolve(request_id: int) -> None:
            """Tell the client that a request needs no answer any more."""
            to_client(thread.connection).notify(
                SERVER_REQUEST_RESOLVED, thread_id=thread.id, request_id=request_id
            )

        client_hooks.offer_callbacks(thread.client, thread.live, resolve)


def to_audience(context: ConnectionContext, thread_id: str) -> ThreadNotifier:
    """Return the notifier for this client and all clients that have the thread open."""
    live = context.conversations.find(thread_id)
    audience = context.conversations.hear_all if live is None else live.subscriptions.audience
    others = audience(shared_threads.thread_api(context))
    client = context.client
    return to_client(context).to([client, *(each for each in others if each is not client)])
