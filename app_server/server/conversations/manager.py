"""All open conversations of a server, by id, and the connected clients."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from contextlib import nullcontext
from pathlib import Path

import anyio
from anyio.abc import TaskGroup

from app_server.engine.client_context import ClientContext
from app_server.engine.config.config_values import Config
from app_server.engine.support.real_path import real_path
from app_server.engine.thread_origin import NewConversation, OpenedConversation, Origin, StoredRollout
from app_server.server.conversations.adapter import ConversationApi
from app_server.server.conversations.live import LiveConversation
from app_server.server.conversations.subscriptions import Client
from app_server_protocol.rpc_errors import invalid_request, not_found, overloaded
from app_server_protocol.values import replace

log = logging.getLogger(__name__)


MOST_REMEMBERED = 10_000
"""Maximum number of subscriptions that are remembered after their conversations have ended, for clients that end them
later.
"""


class ConversationManager:
    """Opens, finds and ends conversations."""

    def __init__(
        self,
        open: Callable[[Config, Origin, ClientContext], Awaitable[OpenedConversation]],
        group: TaskGroup,
        most: int,
        wall_clock: Callable[[], float],
    ) -> None:
        self._wall_clock = wall_clock
        self._open, self._group, self._most = open, group, most
        self.clients: set[Client] = set()
        """Connected clients."""
        self.draining = False
        """Whether the server drains: it begins no new work, and ends once the running work has ended."""
        self.outlasts_clients = False
        """Whether the server outlives its clients: other clients may join a conversation at any moment, and turns begin
        for a goal only while a client is subscribed.
        """
        self.on_leave: Callable[[], None] = lambda: None
        """Called when a client has left."""
        self.on_renamed: dict[Hashable, Callable[[str, str, Client], None]] = {}
        """Functions that are called with the id and the new name of a conversation, open or not, and with the client
        that named it; by the client or the API that they belong to. Those of a client end with it.
        """
        self.wait_for_room: Callable[[], Awaitable[None]] | None = None
        """Awaited before a conversation is opened: idle ones may have to be ended first."""
        self._live: dict[str, LiveConversation] = {}
        self._untold: dict[str, list[str]] = {}
        """Warnings that no client was sent before a conversation was unloaded, for the next client that opens it."""

    async def open(
        self, client: Client, config: Config, origin: Origin
    ) -> tuple[LiveConversation, OpenedConversation]:
        """Begin a conversation, or open a stored one; if the stored one is open here, it is ended first. Raises
        RpcError if other clients use that one.
        """
        if len(self._live) >= self._most:
            raise overloaded(f"{len(self._live)} conversations are open; archive some first")
        if self.wait_for_room is not None:
            await self.wait_for_room()
        before = self._of_rollout(origin.path) if isinstance(origin, StoredRollout) else None
        if before is not None and before.shared_with_others(client):
            raise invalid_request(f"conversation {before.id} is open for another client", "busy")
        if self.outlasts_clients and isinstance(origin, StoredRollout):
            origin = replace(origin, turns=True)
        # The file has one writer: the new session takes over after the old one has ended.
        async with nullcontext() if before is None else before.replaced():
            opened = await self._open(config, origin, client.caller)
        id = opened.session.id
        live = self._live[id] = LiveConversation(
            id,
            opened.session,
            client,
            self.clients,
            self._wall_clock(),
            opened.forked_from,
            brings_tools=isinstance(origin, NewConversation),
        )
        if opened.stored is not None and opened.stored.turns is not None:
            live.subscriptions.live_turn.ids = opened.stored.turns.ids
        live.pending_warnings += self._untold.pop(id, ())
        if self.outlasts_clients:
            opened.session.store_identity()
            opened.session.goal.watch(False)
            live.subscriptions.on_watched = opened.session.goal.watch
        self._group.start_soon(self._run, live, name=f"conversation {live.id}")
        return live, opened

    async def find_shared(self, client: Client, path: Path) -> LiveConversation | None:
        """Return the open conversation of a file if other clients use it: this client joins it instead of
        reopening it.
        """
        live = self._of_rollout(path)
        while live is not None and live.ending:
            await live.gone.wait()
            live = self._of_rollout(path)
        return live if live is not None and live.shared_with_others(client) else None

    def in_background(self, work: Callable[[], Coroutine[None, None, None]], name: str) -> None:
        """Start a task that runs as long as the server does."""
        self._group.start_soon(work, name=name)

    def hear_all(self, api: ConversationApi) -> list[Client]:
        """Return the clients that are notified of every conversation over that API."""
        return [each for each in self.clients if each.receives_all_threads and api.id in each.speaks]

    @property
    def busy(self) -> bool:
        """Whether any work runs or is about to, or waits for an answer."""
        return any(live.busy for live in self._live.values())

    def find(self, id: str) -> LiveConversation | None:
        return self._live.get(id)

    async def find_settled(self, id: str) -> LiveConversation | None:
        """Return the open conversation with this id; None if there is none. One that is ending is waited for, and then
        is none.
        """
        live = self.find(id)
        while live is not None and live.ending:
            await live.gone.wait()
            live = self.find(id)
        return live

    def all(self) -> list[LiveConversation]:
        """Return the open conversations, in the order in which they were opened."""
        return list(self._live.values())

    def get(self, id: str) -> LiveConversation:
        live = self._live.get(id)
        if live is None:
            raise not_found("conversation", id)
        return live

    def _of_rollout(self, path: Path) -> LiveConversation | None:
        real = real_path(path)
        stored = (live for live in self._live.values() if live.rollout_path is not None)
        return next((live for live in stored if real_path(live.rollout_path or "") == real), None)

    def subscribe(
        self, client: Client, live: LiveConversation, id: str, api: ConversationApi, *, raw: bool
    ) -> None:
        """Add a subscription that the client ends by its id."""
        live.subscribe(client, id, api, raw=raw)
        client.subscriptions[id] = live.id
        if len(client.subscriptions) > MOST_REMEMBERED:
            ended = (each for each, of in client.subscriptions.items() if self.find(of) is None)
            client.subscriptions.pop(next(ended, ""), None)

    def unsubscribe(self, client: Client, id: str) -> None:
        """End a subscription. Raises RpcError if its id is not known; ids of ended conversations are known."""
        conversation = client.subscriptions.pop(id, None)
        if conversation is None:
            raise not_found("subscription", id)
        if (live := self.find(conversation)) is not None:
            live.unsubscribe(client, id)

    def renamed(self, id: str, name: str, by: Client) -> None:
        """Tell the APIs that a client has named a conversation."""
        for tell in list(self.on_renamed.values()):
            tell(id, name, by)

    def leave(self, client: Client) -> None:
        """Remove a client that has left; its conversations go on."""
        self.clients.discard(client)
        self.on_renamed.pop(client, None)
        for live in self._live.values():
            live.leave(client)
        self.on_leave()

    async def shut_down(self, id: str) -> bool:
        """End a conversation cleanly; return False if it is not open."""
        live = self._live.get(id)
        if live is None:
            return False
        await live.shut_down()
        return True

    async def end_all(self) -> None:
        """End all conversations cleanly and at once."""
        await self._end(LiveConversation.shut_down)

    async def end_when_settled(self) -> None:
        """End each conversation once none of its turns runs or is about to."""
        await self._end(LiveConversation.end_when_settled)

    async def _end(self, way: Callable[[LiveConversation], Coroutine[None, None, None]]) -> None:
        async with anyio.create_task_group() as group:
            for live in self.all():
                group.start_soon(way, live)

    async def _run(self, live: LiveConversation) -> None:
        try:
            await live.run()
        except Exception:
            # An error of one conversation must not end the others.
            log.exception("conversation %s", live.id)
        finally:
            if self._live.get(live.id) is live:
                del self._live[live.id]
            if live.pending_warnings:
                self._untold[live.id] = live.pending_warnings
