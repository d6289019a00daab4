"""A turn that this client has begun: wait for it, add to it, end it."""

from __future__ import annotations

import anyio

from app_server.client.connection import ServerConnection
from app_server.client.failures import AppServerError
from app_server.client.prompt import Prompt, parts_of
from app_server.client.turn_progress import TurnProgress, TurnResult
from protocol.v2.turn import TURN_INTERRUPT, TURN_STEER, TurnInterruptParams, TurnSteerParams

INTERRUPT_WITHIN = 5.0
"""Seconds that an abandoned turn may take to end before its caller goes on."""


class TurnHandle:
    """A turn by its id."""

    def __init__(self, connection: ServerConnection, thread_id: str, progress: TurnProgress) -> None:
        self._connection, self._progress = connection, progress
        self.thread_id, self.id = thread_id, progress.turn_id

    @property
    def running(self) -> bool:
        return self._progress.running

    async def result(self) -> TurnResult[None]:
        """Wait for the end of the turn. A failed turn is a result. Raises ServerEnded, HandlerFailed.

        Cancelling this leaves the turn running.
        """
        return await self._progress.wait()

    async def steer(self, prompt: Prompt) -> None:
        """Say something to the turn while it runs. Raises RequestRefused if it has ended."""
        params = TurnSteerParams(thread_id=self.thread_id, input=parts_of(prompt), expected_turn_id=self.id)
        await self._connection.request(TURN_STEER, params)

    async def interrupt(self) -> None:
        """End the turn; its result then has the status `interrupted`."""
        await self._connection.request(
            TURN_INTERRUPT, TurnInterruptParams(thread_id=self.thread_id, turn_id=self.id)
        )

    async def abandon(self) -> None:
        """Interrupt the turn if it still runs, and wait a bounded time for its end. Raises nothing."""
        if not self.running:
            return
        with anyio.move_on_after(INTERRUPT_WITHIN, shield=True):
            try:
                await self.interrupt()
                await self._progress.ended()
            except AppServerError:
                return  # the turn has ended meanwhile, or the server is gone
