"""The same library without `async`: for scripts and notebooks. An event loop of its own runs in a thread.

Every class wraps one of the asynchronous ones, with the same methods. `on_approval` runs in a thread of its own, so it
may wait for a person. If an exception of the calling thread (Ctrl-C) ends a call, the call is cancelled, which
interrupts the turn of a `run` or of a stream.

Written by `python -m app_server.client.write_sync`: do not edit it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Generic, Self, Unpack, overload

from app_server.client.answering import ApprovalHandler
from app_server.client.app_server import AppServer, ConnectOptions
from app_server.client.event_stream import E, EventSubscription, TurnStream
from app_server.client.events import ServerEvent, ThreadEvent
from app_server.client.link import OWN_COMMAND, Connector
from app_server.client.options import ForkOptions, ListOptions, OpenOptions, Prompt, StartOptions, TurnOptions
from app_server.client.request_client import P, R
from app_server.client.sync_portal import SyncFace, connected
from app_server.client.thread_handle import M, ThreadHandle
from app_server.client.turn_handle import TurnHandle, TurnResult
from app_server_protocol.encoding import Json
from app_server_protocol.method_table import ClientRequest
from app_server_protocol.v2.checkpoints import (
    ConflictResolution,
    RestoreScope,
    ThreadCheckpointListResponse,
    ThreadCheckpointPreviewResponse,
    ThreadCheckpointRestoreResponse,
)
from app_server_protocol.v2.models import ListedModel
from app_server_protocol.v2.server import InitializeResponse
from app_server_protocol.v2.thread import Thread
from app_server_protocol.v2.thread_open import OpenedThread
from app_server_protocol.v2.turn import ReviewTarget


class SyncTurnHandle(SyncFace[TurnHandle]):
    """`TurnHandle` for code without an event loop."""

    @property
    def thread_id(self) -> str:
        return self._behind.thread_id

    @property
    def id(self) -> str:
        return self._behind.id

    @property
    def running(self) -> bool:
        return self._behind.running

    def result(self) -> TurnResult[None]:
        """Wait for the end of the turn and return its result. A failed turn is a result. Raises ServerEnded,
        HandlerFailed.

        Cancelling the call leaves the turn running.
        """
        return self._caller.call(lambda: self._behind.result())

    def steer(self, prompt: Prompt) -> None:
        """Send a prompt to the running turn. Raises RequestRefused if it has ended."""
        return self._caller.call(lambda: self._behind.steer(prompt))

    def interrupt(self) -> None:
        """Interrupt the turn; its result then has the status `interrupted`."""
        return self._caller.call(lambda: self._behind.interrupt())


class SyncTurnStream(SyncFace[TurnStream]):
    """`TurnStream` for code without an event loop."""

    @property
    def turn(self) -> SyncTurnHandle:
        """The turn. Raises RuntimeError before it has begun."""
        return SyncTurnHandle(self._caller, self._behind.turn)

    def __iter__(self) -> Iterator[ThreadEvent]:
        return self._caller.iterate(self._behind)

    def result(self) -> TurnResult[None]:
        """Wait for the end of the turn, without reading the rest of the stream."""
        return self._caller.call(lambda: self._behind.result())

    def __enter__(self) -> Self:
        self._caller.call(self._behind.__aenter__)
        return self

    def __exit__(self, *raised: object) -> None:
        self._caller.leave(lambda: self._behind.__aexit__(*raised))


class SyncSubscription(SyncFace[EventSubscription[E]], Generic[E]):
    """`EventSubscription` for code without an event loop."""

    def __iter__(self) -> Iterator[E]:
        return self._caller.iterate(self._behind)

    def close(self) -> None:
        """End the subscription. Waiting events can still be read."""
        self._caller.leave(self._behind.__aexit__)

    def __enter__(self) -> Self:
        self._caller.call(self._behind.__aenter__)
        return self

    def __exit__(self, *raised: object) -> None:
        self._caller.leave(lambda: self._behind.__aexit__(*raised))


class SyncThreadHandle(SyncFace[ThreadHandle]):
    """`ThreadHandle` for code without an event loop."""

    @property
    def opened(self) -> OpenedThread:
        return self._behind.opened

    @property
    def id(self) -> str:
        return self._behind.id

    @overload
    def run(
        self, prompt: Prompt, *, output: None = None, **options: Unpack[TurnOptions]
    ) -> TurnResult[None]: ...

    @overload
    def run(self, prompt: Prompt, *, output: type[M], **options: Unpack[TurnOptions]) -> TurnResult[M]: ...

    @overload
    def run(
        self, prompt: Prompt, *, output: Mapping[str, Json], **options: Unpack[TurnOptions]
    ) -> TurnResult[Json]: ...

    def run(
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
        return self._caller.call(lambda: self._behind.run(prompt, output=output, **options))

    def stream(self, prompt: Prompt, **options: Unpack[TurnOptions]) -> SyncTurnStream:
        """Run a turn and return its events, from `turn/started` to `turn/completed`: `for event in
        thread.stream(…)`.
        """
        return SyncTurnStream(self._caller, self._caller.make(lambda: self._behind.stream(prompt, **options)))

    def start_turn(self, prompt: Prompt, **options: Unpack[TurnOptions]) -> SyncTurnHandle:
        """Begin a turn without waiting for it. Its events are among those of `events()`.

        If a turn is running, the prompt is added to that turn.
        """
        return SyncTurnHandle(
            self._caller, self._caller.call(lambda: self._behind.start_turn(prompt, **options))
        )

    def review(self, target: ReviewTarget) -> SyncTurnStream:
        """Run a review and return the events of its turn; its final message has the findings."""
        return SyncTurnStream(self._caller, self._caller.make(lambda: self._behind.review(target)))

    def turn(self, turn_id: str) -> SyncTurnHandle:
        """Follow a running turn: one that `resume_thread` found, or that the server began by itself.

        Its result has the items from now on.
        """
        return SyncTurnHandle(self._caller, self._caller.make(lambda: self._behind.turn(turn_id)))

    def events(self) -> SyncSubscription[ThreadEvent]:
        """Subscribe to all events of the thread, of every turn, until the stream or the thread is closed."""
        return SyncSubscription(self._caller, self._caller.make(lambda: self._behind.events()))

    def steer(self, prompt: Prompt) -> None:
        """Send a prompt to the running turn. Raises RequestRefused if none runs."""
        return self._caller.call(lambda: self._behind.steer(prompt))

    def interrupt(self) -> None:
        """Interrupt the running turn, if there is one."""
        return self._caller.call(lambda: self._behind.interrupt())

    def list_checkpoints(self, cursor: str | None = None) -> ThreadCheckpointListResponse:
        """Return a page of the turns with what they changed in files, the newest first, and the restores."""
        return self._caller.call(lambda: self._behind.list_checkpoints(cursor))

    def preview_restore(
        self, before_turn_id: str, restore: RestoreScope = "both", *, uncertain: bool = False
    ) -> ThreadCheckpointPreviewResponse:
        """Return what going back to the begin of a turn would do. `uncertain`: changes that may be the user's are
        restored, too.
        """
        return self._caller.call(
            lambda: self._behind.preview_restore(before_turn_id, restore, uncertain=uncertain)
        )

    def restore(
        self,
        before_turn_id: str,
        token: str,
        restore: RestoreScope = "both",
        *,
        uncertain: bool = False,
        conflicts: ConflictResolution = "keep",
    ) -> ThreadCheckpointRestoreResponse:
        """Go back to the begin of a turn, as the preview with this token has shown. Raises RequestRefused if files have
        changed since, or something works there.
        """
        return self._caller.call(
            lambda: self._behind.restore(
                before_turn_id, token, restore, uncertain=uncertain, conflicts=conflicts
            )
        )

    def fork(
        self, *, on_approval: ApprovalHandler | None = None, **options: Unpack[ForkOptions]
    ) -> SyncThreadHandle:
        """Open a thread that begins as a copy of this one."""
        return SyncThreadHandle(
            self._caller, self._caller.call(lambda: self._behind.fork(on_approval=on_approval, **options))
        )

    def compact(self) -> TurnResult[None]:
        """Replace the model's history by a summary, which is a turn of its own. Cancelling the call interrupts it."""
        return self._caller.call(lambda: self._behind.compact())

    def read(self, *, turns: bool = True) -> Thread:
        """Return the thread as it is stored, with its turns."""
        return self._caller.call(lambda: self._behind.read(turns=turns))

    def set_name(self, name: str) -> None:
        return self._caller.call(lambda: self._behind.set_name(name))

    def archive(self) -> None:
        """End the thread and remove it from the list."""
        return self._caller.call(lambda: self._behind.archive())

    def close(self) -> None:
        """Unsubscribe from the thread. It stays stored; a running turn of it continues."""
        return self._caller.call(lambda: self._behind.close())


class SyncAppServer(SyncFace[AppServer]):
    """`AppServer` for code without an event loop."""

    @classmethod
    @contextmanager
    def spawn(
        cls,
        command: Sequence[str] = OWN_COMMAND,
        *,
        environment: Mapping[str, str] | None = None,
        cwd: Path | str | None = None,
        on_stderr: Callable[[str], None] | None = None,
        on_exit: Callable[[int], None] | None = None,
        **options: Unpack[ConnectOptions],
    ) -> Iterator[SyncAppServer]:
        """Start a server in a process of its own, which ends with the block. Without a command it is the server of this
        installation. If `environment` is None, the server gets the environment of this process. `on_stderr` receives
        every line that the server logs, `on_exit` its exit status. Raises ServerEnded if the server cannot be started.
        """
        with connected(
            AppServer.spawn(
                command, environment=environment, cwd=cwd, on_stderr=on_stderr, on_exit=on_exit, **options
            )
        ) as (caller, server):
            yield cls(caller, server)

    @classmethod
    @contextmanager
    def connect(
        cls, connector: Connector | Path | str, **options: Unpack[ConnectOptions]
    ) -> Iterator[SyncAppServer]:
        """Connect to a server through any connector. `app_server.in_process.InProcessConnector` runs one in this
        process, `shared_server` connects to the one that all of the user's clients share. A path is that of a shared
        server's socket.
        """
        with connected(AppServer.connect(connector, **options)) as (caller, server):
            yield cls(caller, server)

    def start_thread(
        self, *, on_approval: ApprovalHandler | None = None, **options: Unpack[StartOptions]
    ) -> SyncThreadHandle:
        """Start a new thread. Settings that are not given come from the server's configuration."""
        return SyncThreadHandle(
            self._caller,
            self._caller.call(lambda: self._behind.start_thread(on_approval=on_approval, **options)),
        )

    def resume_thread(
        self,
        thread_id: str,
        *,
        on_approval: ApprovalHandler | None = None,
        turns: bool = False,
        **options: Unpack[OpenOptions],
    ) -> SyncThreadHandle:
        """Resume a thread, stored or open. With `turns`, `handle.opened.thread.turns` has its history.

        The server repeats requests that are still open.
        """
        return SyncThreadHandle(
            self._caller,
            self._caller.call(
                lambda: self._behind.resume_thread(thread_id, on_approval=on_approval, turns=turns, **options)
            ),
        )

    def fork_thread(
        self, thread_id: str, *, on_approval: ApprovalHandler | None = None, **options: Unpack[ForkOptions]
    ) -> SyncThreadHandle:
        """Open a thread that begins as a copy of another one, stored or open."""
        return SyncThreadHandle(
            self._caller,
            self._caller.call(
                lambda: self._behind.fork_thread(thread_id, on_approval=on_approval, **options)
            ),
        )

    def threads(self, **options: Unpack[ListOptions]) -> Iterator[Thread]:
        """Yield stored threads, the newest first by default, fetched page by page."""
        return self._caller.iterate(self._behind.threads(**options))

    def models(self, *, provider: str | None = None, hidden: bool = False) -> tuple[ListedModel, ...]:
        """Return the models that can be chosen."""
        return self._caller.call(lambda: self._behind.models(provider=provider, hidden=hidden))

    def events(self) -> SyncSubscription[ServerEvent]:
        """Subscribe to all notifications from now on: of every thread, warnings, the account, skills, watched files."""
        return SyncSubscription(self._caller, self._caller.make(lambda: self._behind.events()))

    @property
    def info(self) -> InitializeResponse:
        return self._behind.info

    def request(self, row: ClientRequest[P, R], params: P) -> R:
        """Call any method of the protocol, by its row in `app_server_protocol.v2`. Unset fields are not sent."""
        return self._caller.call(lambda: self._behind.request(row, params))

    def request_raw(self, method: str, params: Json = None) -> Json:
        """Call any method by its name, with plain JSON."""
        return self._caller.call(lambda: self._behind.request_raw(method, params))

    def pages(self, row: ClientRequest[P, R], params: P) -> Iterator[R]:
        """Call a method that lists something, and yield its results page by page."""
        return self._caller.iterate(self._behind.pages(row, params))
