"""The same library without `async`: for scripts and notebooks. An event loop of its own runs in a thread.

Every class wraps one of the asynchronous ones, with the same methods. A call that is left by an exception of its own
thread (Ctrl-C) is cancelled there, which interrupts the turn of a `run` or of a stream.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Generic, Self, TypeVar, Unpack, overload

import anyio
from anyio.from_thread import BlockingPortal
from pydantic import BaseModel

from app_server.client.answering import ApprovalHandler
from app_server.client.app_server import AppServer
from app_server.client.event_stream import EventSubscription, TurnStream
from app_server.client.events import ServerEvent, ThreadEvent
from app_server.client.failures import AppServerError
from app_server.client.feeds import OnWarning, log_warning
from app_server.client.link import OWN_COMMAND, Connector, SubprocessConnector
from app_server.client.options import ForkOptions, ListOptions, OpenOptions, Prompt, StartOptions, TurnOptions
from app_server.client.thread_handle import ThreadHandle
from app_server.client.turn_handle import TurnHandle, TurnResult
from protocol.base import Json, WireModel
from protocol.structs import Written
from protocol.table import ClientRequest
from protocol.v2.models import ListedModel
from protocol.v2.server import ClientInfo, InitializeResponse
from protocol.v2.thread import Thread
from protocol.v2.thread_open import OpenedThread

E = TypeVar("E", bound=ServerEvent)
M = TypeVar("M", bound=BaseModel)
P = TypeVar("P", bound=WireModel)
R = TypeVar("R", bound=Written)
T = TypeVar("T")


OF_ANOTHER_PROCESS = "the server belongs to the process that this one was forked from; start another one here"

CANCELLED_WITHIN = 10.0
"""Seconds that a cancelled call may take to end; an abandoned turn takes at most `turn_handle.INTERRUPT_WITHIN`."""


class LoopThread:
    """An event loop in a thread of its own, as of `start_blocking_portal`, but that a process that was forked from this
    one has no such thread, and leaves it alone."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._started: Future[BlockingPortal] = Future()
        self._thread = threading.Thread(target=anyio.run, args=(self._run,), daemon=True)

    @property
    def elsewhere(self) -> bool:
        """Whether this is a process that was forked."""
        return os.getpid() != self._process

    async def _run(self) -> None:
        async with BlockingPortal() as portal:
            self._started.set_result(portal)
            await portal.sleep_until_stopped()

    def __enter__(self) -> BlockingPortal:
        self._thread.start()
        return self._started.result()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        portal = self._started.result()
        portal.call(portal.stop, kind is not None)
        self._thread.join()


class PortalCaller:
    """Runs coroutines in the loop's thread, for a thread that waits."""

    def __init__(self, portal: BlockingPortal, loop: LoopThread) -> None:
        self._portal, self._loop = portal, loop

    @property
    def elsewhere(self) -> bool:
        return self._loop.elsewhere

    def call(self, function: Callable[[], Awaitable[T]]) -> T:
        """The result. If the waiting is interrupted, the coroutine is cancelled, and has a bounded time to end."""
        if self.elsewhere:
            raise AppServerError(OF_ANOTHER_PROCESS)
        ended = threading.Event()

        async def called() -> T:
            try:
                return await function()
            finally:
                ended.set()

        future = self._portal.start_task_soon(called)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            ended.wait(CANCELLED_WITHIN)
            raise

    def iterate(self, next_event: Callable[[], Awaitable[E | None]]) -> Iterator[E]:
        while (event := self.call(next_event)) is not None:
            yield event


class SyncAppServer:
    """`AppServer` for code without an event loop."""

    def __init__(self, caller: PortalCaller, server: AppServer) -> None:
        """Use `spawn` or `connect`."""
        self._caller, self._server = caller, server

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
        on_approval: ApprovalHandler | None = None,
        on_warning: OnWarning = log_warning,
        client: ClientInfo | None = None,
    ) -> Iterator[SyncAppServer]:
        """See `AppServer.spawn`. `on_approval` runs in a thread of its own, so it may wait for a person."""
        connector = SubprocessConnector(
            command=command, environment=environment, cwd=cwd, on_stderr=on_stderr, on_exit=on_exit
        )
        with cls.connect(connector, on_approval=on_approval, on_warning=on_warning, client=client) as server:
            yield server

    @classmethod
    @contextmanager
    def connect(
        cls,
        connector: Connector,
        *,
        on_approval: ApprovalHandler | None = None,
        on_warning: OnWarning = log_warning,
        client: ClientInfo | None = None,
    ) -> Iterator[SyncAppServer]:
        """See `AppServer.connect`."""
        loop = LoopThread()
        with ExitStack() as stack:
            portal = stack.enter_context(loop)
            connecting = AppServer.connect(
                connector, on_approval=on_approval, on_warning=on_warning, client=client
            )
            server = stack.enter_context(portal.wrap_async_context_manager(connecting))
            try:
                yield cls(PortalCaller(portal, loop), server)
            finally:
                if loop.elsewhere:
                    stack.pop_all()

    @property
    def info(self) -> InitializeResponse:
        return self._server.info

    def start_thread(
        self, *, on_approval: ApprovalHandler | None = None, **options: Unpack[StartOptions]
    ) -> SyncThreadHandle:
        start = partial(self._server.start_thread, on_approval=on_approval, **options)
        return SyncThreadHandle(self._caller, self._caller.call(start))

    def resume_thread(
        self,
        thread_id: str,
        *,
        on_approval: ApprovalHandler | None = None,
        turns: bool = False,
        **options: Unpack[OpenOptions],
    ) -> SyncThreadHandle:
        resume = partial(
            self._server.resume_thread, thread_id, on_approval=on_approval, turns=turns, **options
        )
        return SyncThreadHandle(self._caller, self._caller.call(resume))

    def threads(self, **options: Unpack[ListOptions]) -> Iterator[Thread]:
        pages = self._server.threads(**options)
        return self._caller.iterate(lambda: anext(pages, None))

    def models(self, *, provider: str | None = None, hidden: bool = False) -> tuple[ListedModel, ...]:
        return self._caller.call(partial(self._server.models, provider=provider, hidden=hidden))

    def events(self) -> SyncSubscription[ServerEvent]:
        return SyncSubscription(self._caller, self._server.events)

    def request(self, row: ClientRequest[P, R], params: P) -> R:
        return self._caller.call(partial(self._server.request, row, params))

    def request_raw(self, method: str, params: Json = None) -> Json:
        return self._caller.call(partial(self._server.request_raw, method, params))


class SyncThreadHandle:
    """`ThreadHandle` for code without an event loop."""

    def __init__(self, caller: PortalCaller, thread: ThreadHandle) -> None:
        self._caller, self._thread = caller, thread

    @property
    def id(self) -> str:
        return self._thread.id

    @property
    def opened(self) -> OpenedThread:
        return self._thread.opened

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
        """One whole turn; see `ThreadHandle.run`. Ctrl-C interrupts it."""
        if output is None:
            return self._caller.call(partial(self._thread.run, prompt, **options))
        if isinstance(output, Mapping):
            return self._caller.call(partial(self._thread.run, prompt, output=output, **options))
        return self._caller.call(partial(self._thread.run, prompt, output=output, **options))

    def stream(self, prompt: Prompt, **options: Unpack[TurnOptions]) -> SyncTurnStream:
        """One turn as its events: `for event in thread.stream("…")`."""
        return SyncTurnStream(self._caller, self._thread.stream(prompt, **options))

    def start_turn(self, prompt: Prompt, **options: Unpack[TurnOptions]) -> SyncTurnHandle:
        turn = self._caller.call(partial(self._thread.start_turn, prompt, **options))
        return SyncTurnHandle(self._caller, turn)

    def events(self) -> SyncSubscription[ThreadEvent]:
        return SyncSubscription(self._caller, self._thread.events)

    def steer(self, prompt: Prompt) -> None:
        self._caller.call(partial(self._thread.steer, prompt))

    def interrupt(self) -> None:
        self._caller.call(self._thread.interrupt)

    def fork(
        self, *, on_approval: ApprovalHandler | None = None, **options: Unpack[ForkOptions]
    ) -> SyncThreadHandle:
        fork = partial(self._thread.fork, on_approval=on_approval, **options)
        return SyncThreadHandle(self._caller, self._caller.call(fork))

    def compact(self) -> TurnResult[None]:
        return self._caller.call(self._thread.compact)

    def read(self, *, turns: bool = True) -> Thread:
        return self._caller.call(partial(self._thread.read, turns=turns))

    def set_name(self, name: str) -> None:
        self._caller.call(partial(self._thread.set_name, name))

    def archive(self) -> None:
        self._caller.call(self._thread.archive)

    def close(self) -> None:
        self._caller.call(self._thread.close)


class SyncTurnHandle:
    """`TurnHandle` for code without an event loop."""

    def __init__(self, caller: PortalCaller, turn: TurnHandle) -> None:
        self._caller, self._turn = caller, turn

    @property
    def id(self) -> str:
        return self._turn.id

    @property
    def running(self) -> bool:
        return self._turn.running

    def result(self) -> TurnResult[None]:
        return self._caller.call(self._turn.result)

    def steer(self, prompt: Prompt) -> None:
        self._caller.call(partial(self._turn.steer, prompt))

    def interrupt(self) -> None:
        self._caller.call(self._turn.interrupt)


class SyncTurnStream:
    """`TurnStream` for code without an event loop."""

    def __init__(self, caller: PortalCaller, stream: TurnStream) -> None:
        self._caller, self._stream = caller, stream

    @property
    def turn(self) -> SyncTurnHandle:
        return SyncTurnHandle(self._caller, self._stream.turn)

    def __iter__(self) -> Iterator[ThreadEvent]:
        return self._caller.iterate(lambda: anext(self._stream, None))

    def result(self) -> TurnResult[None]:
        return self._caller.call(self._stream.result)

    def __enter__(self) -> Self:
        self._caller.call(self._stream.__aenter__)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._caller.elsewhere:
            self._caller.call(partial(self._stream.__aexit__, kind, error, trace))


class SyncSubscription(Generic[E]):
    """`EventSubscription` for code without an event loop."""

    def __init__(self, caller: PortalCaller, subscribe: Callable[[], EventSubscription[E]]) -> None:
        async def subscribed() -> EventSubscription[E]:
            return subscribe()

        self._caller, self._events = caller, caller.call(subscribed)

    def __iter__(self) -> Iterator[E]:
        return self._caller.iterate(lambda: anext(self._events, None))

    def close(self) -> None:
        async def close() -> None:
            self._events.close()

        if not self._caller.elsewhere:
            self._caller.call(close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
