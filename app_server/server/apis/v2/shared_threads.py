"""What all clients of the thread API share in a server: the API itself, by which conversations know it, and the task
that unloads idle threads. The first client that uses threads makes it.
"""

from __future__ import annotations

from functools import partial

import anyio
from msgspec import Struct

from app_server.server.apis.contexts import ConnectionContext
from app_server.server.apis.v2.account_limits import AccountLimits
from app_server.server.apis.v2.thread_notifier import to_client
from app_server.server.apis.v2.v2_adapter import ThreadAdapter
from app_server.server.conversations.adapter import ApiId, ConversationApi
from app_server.server.conversations.idle import IdleReaper
from app_server.server.conversations.live import LiveConversation
from app_server.server.conversations.subscriptions import Client
from app_server_protocol.v2 import thread as wire


class SharedThreads(Struct, frozen=True):
    api: ConversationApi
    unloader: IdleReaper


def thread_api(context: ConnectionContext) -> ConversationApi:
    """Return the API. The client can be notified of threads over it from now on."""
    api = shared_threads(context).api
    context.client.speaks.add(api.id)
    return api


def shared_threads(context: ConnectionContext) -> SharedThreads:
    return context.shared.get(SharedThreads, lambda: _begin(context))


def _begin(context: ConnectionContext) -> SharedThreads:
    """Make the API, and begin to unload idle threads."""
    conversations, machine = context.conversations, context.machine
    notifier = to_client(context)
    limits = context.shared.get(AccountLimits, AccountLimits)

    def new_adapter(thread_id: str) -> ThreadAdapter:
        live = conversations.find(thread_id)
        used = None if live is None else live.session.facts.usage
        return ThreadAdapter(thread_id, machine.wall_clock, limits, used)

    api = ConversationApi(ApiId("v2"), new_adapter)

    def closed(live: LiveConversation) -> None:
        heard, id = notifier.to(live.subscriptions.audience(api)), live.id
        heard.notify(wire.THREAD_CLOSED, thread_id=id)
        heard.notify(wire.THREAD_STATUS_CHANGED, thread_id=id, status=wire.NotLoadedThreadStatus())

    def renamed(id: str, name: str, by: Client) -> None:
        live = conversations.find(id)
        heard = conversations.hear_all(api) if live is None else live.subscriptions.audience(api)
        if api.id in by.speaks:
            heard = [by, *(each for each in heard if each is not by)]
        notifier.to(heard).notify(wire.THREAD_NAME_UPDATED, thread_id=id, thread_name=name)

    conversations.on_renamed[api.id] = renamed
    unloader = context.shared.get(IdleReaper, lambda: IdleReaper(conversations, machine.monotonic))
    unloader.closed.append(closed)
    conversations.in_background(partial(unloader.run, anyio.sleep), "idle conversations")
    return SharedThreads(api, unloader)
