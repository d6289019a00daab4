"""A thread that this client has open: its turns, its requests, and changes to the thread itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar, Unpack, overload

from pydantic import BaseModel

from app_server.client.answering import ApprovalHandler
from app_server.client.connection import ServerConnection, chosen_fields
from app_server.client.event_stream import EventQueue, EventSubscription, TurnStream
from app_server.client.events import ThreadEvent
from app_server.client.feeds import ServerFeeds
from app_server.client.options import ForkOptions, Prompt, TurnOptions, parameters, parts_of
from app_server.client.turn_handle import OutputModel, TurnHandle, TurnResult, parsed_json
from app_server_protocol.base import WireModel
from app_server_protocol.encoding import Json
from app_server_protocol.method_table import ClientRequest
from app_server_protocol.v2 import checkpoints, thread_open, thread_store, thread_work
from app_server_protocol.v2 import turn as wire
from app_server_protocol.v2.fields import InThread
from app_server_protocol.v2.thread import Thread

M = TypeVar("M", bound=BaseModel)
P = TypeVar("P", bound=WireModel)
Opened = TypeVar("Opened", bound=thread_open.OpenedThread)
BegunTurn = TypeVar("BegunTurn", wire.TurnStartResponse, wire.ReviewStartResponse)


class ThreadHandle:
    """An open thread. `opened` has the settings with which it was opened."""

    def __init__(
        self,
        connection: ServerConnection,
        feeds: ServerFeeds,
        opened: thread_open.OpenedThread,
        on_approval: ApprovalHandler | None,
    ) -> None:
        """Create the handle while the answer that opened the thread is received, so that no event is missed."""
        self._connection, self._feeds, self.opened = connection, feeds, opened
        self._feed = feeds.open(opened.thread.id, on_approval)

    @property
    def id(self) -> str:
        return self.opened.thread.id

    # --- turns
    @overload
    async def run(
        self, prompt: Prompt, *, output: None = None, **options: Unpack[TurnOptions]
    ) -> TurnResult[None]: ...
    @overload
    async def run(
        self, prompt: Prompt, *, output: type[M], **options: Unpack[TurnOptions]
    ) -> TurnResult[M]: ...
    @overload
    async def run(
        self, prompt: Prompt, *, output: Mapping[str, Json], **options: Unpack[TurnOptions]
    ) -> TurnResult[Json]: ...
    async def run(
        self,
        prompt: Prompt,
        *,
        output: type[M] | Mapping[str, Json] | None = None,
        **options: Unpack[TurnOptions],
    ) -> TurnResult[M] | TurnResult[Json] | TurnResult[None]:
        """Run one whole turn. A failed turn is a result, too. Cancelling the call interrupts the turn.

        `output` is a pydantic model or a JSON Schema for the final message; `result.output` is the instance. Raises
        ServerEnded, RequestRefused, HandlerFailed.
        """
        expected = None if output is None or isinstance(output, Mapping) else OutputModel(output)
        schema = expected.schema() if expected is not None else output
        if schema is not None:
            options["output_schema"] = schema
        result = await _whole(await self._begin(prompt, options, None))
        if expected is not None:
            return expected.parsed(result)
        return result if output is None else parsed_json(result)

    def stream(self, prompt: Prompt, **options: Unpack[TurnOptions]) -> TurnStream:
        """Run a turn and return its events, from `turn/started` to `turn/completed`: `async for event in
        thread.stream(…)`.
        """
        return TurnStream(lambda queue: self._begin(prompt, options, queue))

    async def start_turn(self, prompt: Prompt, **options: Unpack[TurnOptions]) -> TurnHandle:
        """Begin a turn without waiting for it. Its events are among those of `events()`.

        If a turn is running, the prompt is added to that turn.
        """
        return await self._begin(prompt, options, None)

    def review(self, target: wire.ReviewTarget) -> TurnStream:
        """Run a review and return the events of its turn; its final message has the findings."""
        return TurnStream(lambda queue: self._begin_review(target, queue))

    async def _begin(self, prompt: Prompt, options: TurnOptions, queue: EventQueue | None) -> TurnHandle:
        own = {"thread_id": self.id, "input": parts_of(prompt)}
        params = parameters(wire.TurnStartParams, TurnOptions, options, **own)
        return await self._begin_turn(wire.TURN_START, params, queue)

    async def _begin_review(self, target: wire.ReviewTarget, queue: EventQueue | None) -> TurnHandle:
        params = wire.ReviewStartParams(thread_id=self.id, target=target)
        return await self._begin_turn(wire.REVIEW_START, params, queue)

    async def _begin_turn(
        self, row: ClientRequest[P, BegunTurn], params: P, queue: EventQueue | None
    ) -> TurnHandle:
        made: list[TurnHandle] = []

        def begun(response: wire.TurnStartResponse | wire.ReviewStartResponse) -> None:
            progress = self._feed.follow(response.turn.id, queue)
            made.append(TurnHandle(self._connection, self.id, progress))

        def unwanted(response: wire.TurnStartResponse | wire.ReviewStartResponse) -> None:
            end = wire.TurnInterruptParams(thread_id=self.id, turn_id=response.turn.id)
            self._connection.send_and_forget(wire.TURN_INTERRUPT.method, chosen_fields(end))

        await self._connection.request(row, params, received=begun, late=unwanted)
        return made[0]

    def turn(self, turn_id: str) -> TurnHandle:
        """Follow a running turn: one that `resume_thread` found, or that the server began by itself.

        Its result has the items from now on.
        """
        return TurnHandle(self._connection, self.id, self._feed.follow(turn_id))

    def events(self) -> EventSubscription[ThreadEvent]:
        """Subscribe to all events of the thread, of every turn, until the stream or the thread is closed."""
        queue = EventQueue()
        self._feed.subscribe(queue)
        return EventSubscription(queue, self._feed.unsubscribe)

    async def steer(self, prompt: Prompt) -> None:
        """Send a prompt to the running turn. Raises RequestRefused if none runs."""
        params = wire.TurnSteerParams(
            thread_id=self.id,
            input=parts_of(prompt),
            expected_turn_id=self._feed.running_turn or "",
        )
        await self._connection.request(wire.TURN_STEER, params)

    async def interrupt(self) -> None:
        """Interrupt the running turn, if there is one."""
        if (turn_id := self._feed.running_turn) is not None:
            await self.turn(turn_id).interrupt()

    # --- back to a message
    async def list_checkpoints(self, cursor: str | None = None) -> checkpoints.ThreadCheckpointListResponse:
        """Return a page of the turns with what they changed in files, the newest first, and the restores."""
        params = checkpoints.ThreadCheckpointListParams(thread_id=self.id, cursor=cursor)
        return await self._connection.request(checkpoints.THREAD_CHECKPOINT_LIST, params)

    async def preview_restore(
        self,
        before_turn_id: str,
        restore: checkpoints.RestoreScope = "both",
        *,
        uncertain: bool = False,
    ) -> checkpoints.ThreadCheckpointPreviewResponse:
        """Return what going back to the begin of a turn would do. `uncertain`: changes that may be the user's are
        restored, too.
        """
        params = checkpoints.ThreadCheckpointPreviewParams(
            thread_id=self.id, before_turn_id=before_turn_id, restore=restore, uncertain=uncertain
        )
        return await self._connection.request(checkpoints.THREAD_CHECKPOINT_PREVIEW, params)

    async def restore(
        self,
        before_turn_id: str,
        token: str,
        restore: checkpoints.RestoreScope = "both",
        *,
        uncertain: bool = False,
        conflicts: checkpoints.ConflictResolution = "keep",
    ) -> checkpoints.ThreadCheckpointRestoreResponse:
        """Go back to the begin of a turn, as the preview with this token has shown. Raises RequestRefused if files have
        changed since, or something works there.
        """
        params = checkpoints.ThreadCheckpointRestoreParams(
            thread_id=self.id,
            before_turn_id=before_turn_id,
            restore=restore,
            uncertain=uncertain,
            token=token,
            conflicts=conflicts,
        )
        return await self._connection.request(checkpoints.THREAD_CHECKPOINT_RESTORE, params)

    # --- the thread itself
    async def fork(
        self, *, on_approval: ApprovalHandler | None = None, **options: Unpack[ForkOptions]
    ) -> ThreadHandle:
        """Open a thread that begins as a copy of this one."""
        own = {"thread_id": self.id, "exclude_turns": True}
        params = parameters(thread_open.ThreadForkParams, ForkOptions, options, **own)
        handler = on_approval or self._feed.on_approval
        return await open_thread(self._connection, self._feeds, thread_open.THREAD_FORK, params, handler)

    async def compact(self) -> TurnResult[None]:
        """Replace the model's history by a summary, which is a turn of its own. Cancelling the call interrupts it."""
        progress = self._feed.next_turn()
        await self._connection.request(thread_work.THREAD_COMPACT_START, InThread(thread_id=self.id))
        return await _whole(TurnHandle(self._connection, self.id, progress))

    async def read(self, *, turns: bool = True) -> Thread:
        """Return the thread as it is stored, with its turns."""
        params = thread_store.ThreadReadParams(thread_id=self.id, include_turns=turns)
        return (await self._connection.request(thread_store.THREAD_READ, params)).thread

    async def set_name(self, name: str) -> None:
        await self._connection.request(
            thread_store.THREAD_NAME_SET, thread_store.ThreadSetNameParams(thread_id=self.id, name=name)
        )

    async def archive(self) -> None:
        """End the thread and remove it from the list."""
        await self._connection.request(thread_store.THREAD_ARCHIVE, InThread(thread_id=self.id))
        self._feeds.drop(self.id)

    async def close(self) -> None:
        """Unsubscribe from the thread. It stays stored; a running turn of it continues."""
        await self._connection.request(thread_open.THREAD_UNSUBSCRIBE, InThread(thread_id=self.id))
        self._feeds.drop(self.id)


async def open_thread(
    connection: ServerConnection,
    feeds: ServerFeeds,
    row: ClientRequest[P, Opened],
    params: P,
    on_approval: ApprovalHandler | None,
) -> ThreadHandle:
    """Open a thread with the request of `row`: start, resume or fork."""
    made: list[ThreadHandle] = []

    def opened(response: Opened) -> None:
        made.append(ThreadHandle(connection, feeds, response, on_approval))

    await connection.request(row, params, received=opened)
    return made[0]


async def _whole(turn: TurnHandle) -> TurnResult[None]:
    """Return the result of a turn. If the caller is cancelled, the turn is interrupted."""
    try:
        return await turn.result()
    except BaseException:
        await turn.abandon()
        raise
