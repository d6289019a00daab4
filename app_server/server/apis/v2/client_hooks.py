"""Callbacks of a client: what it announced in `initialize` becomes hooks of the threads that it follows, and their
events are sent to it as `hook/run`. Loaded for clients that announce some.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from app_server.engine.hooks.announced_hooks import (
    AnnouncedHooks,
    BadCallbacks,
    CallbackFailed,
    ClientCallback,
    announced_hooks,
)
from app_server.server.conversations.live import LiveConversation
from app_server.server.conversations.subscriptions import Client
from app_server_protocol.encoding import Json
from app_server_protocol.v2.hook_runs import HOOK_RUN, HookRunParams


def read_announced(client: Client) -> tuple[AnnouncedHooks | None, str | None]:
    """Return the callbacks that a client announced; None and the reason if they cannot be read."""
    try:
        return announced_hooks(client.profile.hooks), None
    except BadCallbacks as problem:
        return None, f"`capabilities.hooks`: {problem}. No event is sent to this client."


def offer_callbacks(client: Client, live: LiveConversation, resolved: Callable[[int], None]) -> None:
    """Ask the client about events of this thread from its next turn on, as long as it follows the thread. `resolved` is
    called with the id of each request that needs no answer any more.
    """
    announced, _ = read_announced(client)
    if announced is None:
        return

    async def ask(event: str, fields: Mapping[str, Json]) -> Json:
        turn_id = fields.get("turn_id")
        params = HookRunParams(thread_id=live.id, turn_id=turn_id, event=event, input=dict(fields))
        waiter = client.outgoing.pending.register()
        try:
            client.outgoing.send_request(waiter, HOOK_RUN.method, params.to_json())
            reply = await waiter.wait()
        finally:
            # Also where the time is over or the turn was interrupted: the client need not go on.
            client.outgoing.pending.forget(waiter)
            resolved(waiter.id)
        if reply.gone:
            raise CallbackFailed("was not answered, because the client left")
        if reply.error is not None:
            raise CallbackFailed(f"was answered with an error: {reply.error[:200]}")
        return reply.result

    callback = ClientCallback(
        client=client.caller.identity().originator,
        announced=announced,
        is_here=lambda: client in live.subscriptions.reachable(),
        ask=ask,
    )
    live.session.use_callbacks(client, callback)
