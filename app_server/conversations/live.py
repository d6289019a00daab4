"""One open conversation, from its opening to its end: its session, who subscribed to it, and the pump between them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from app_server.conversations.adapter import Activity, AdapterFactory, ConversationStatus
from app_server.conversations.pump import Pump
from app_server.conversations.subscriptions import Subscriptions
from app_server.core.errors import CoreError
from app_server.core.session.commands import Close
from app_server.rpc.outgoing import Outgoing

if TYPE_CHECKING:
    from app_server.core.session.handle import SessionHandle


class LiveConversation:
    """Alive from opening to shutdown."""

    def __init__(
        self, id: str, session: SessionHandle, outgoing: Outgoing, forked_from: str | None = None
    ) -> None:
        self.id, self.session, self.forked_from = id, session, forked_from
        self.subscriptions = Subscriptions(id, session, outgoing)
        self._pump = Pump(session, self.subscriptions, outgoing)
        self.unstored_name: str | None = None
        """The name of a conversation that is not stored; names of stored ones are beside their files."""
        self.opened_at = time.time()
        self.unloads = False
        """Whether it may be ended once it has been idle for long."""
        self._kept = 0
        self.ending = False
        """Whether its end was requested; it has ended when it is `gone`."""
        self.gone = anyio.Event()

    @property
    def rollout_path(self) -> Path | None:
        return self.session.facts.rollout_path

    @property
    def status(self) -> ConversationStatus:
        return self._pump.status

    def subscribe(self, subscription_id: str, make_adapter: AdapterFactory, *, raw: bool) -> None:
        """Send what happens from here on in the words of that API, after what waited; open questions are sent, too."""
        self._pump.questions.joined(self.subscriptions.add(subscription_id, make_adapter, raw=raw))

    # --- how long it stays
    @property
    def idle(self) -> bool:
        """Whether nobody is subscribed or about to be, nothing runs or is about to, no command of it goes on, and it is
        not ending.
        """
        if self.ending or self._kept or self.subscriptions.any:
            return False
        return self.status.activity is not Activity.ACTIVE and not self.session.busy

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Keep it from being idle until it is released: a request is being answered that ends with a subscription. It
        is released where the block fails.
        """
        self._kept += 1
        try:
            yield
        except BaseException:
            self._kept -= 1
            raise

    def release(self) -> None:
        self._kept -= 1

    # --- its life
    async def run(self) -> None:
        """Run the session, the pump and the round trips, until the session ends."""
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._pump.run, group, name=f"pump {self.id}")
                await self.session.run()
                if not self.subscriptions.followed.is_set():
                    group.cancel_scope.cancel()
        finally:
            self._pump.questions.close_all()
            self.gone.set()

    async def shut_down(self) -> None:
        """End it in good order: what runs is interrupted, everything is stored, the file is let go."""
        self.ending = True
        try:
            self.session.do(Close())
        except CoreError:
            pass  # it ends already
        await self.gone.wait()

    async def hand_over(self) -> None:
        """End it because it goes on in another session. Subscribers receive the end of its turn."""
        self.subscriptions.continues_elsewhere()
        await self.shut_down()
