"""The same library without `async`: for scripts and notebooks. An event loop of its own runs in a thread.

Every class wraps one of the asynchronous ones, with the same methods. If an exception of the calling thread (Ctrl-C)
ends a call, the call is cancelled in the event loop, which interrupts the turn of a `run` or of a stream.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, AbstractContextManager, ExitStack, contextmanager
from functools import partial, wraps
from types import TracebackType
from typing import Concatenate, Generic, ParamSpec, Self, TypeVar, Unpack

import anyio
from anyio.from_thread import BlockingPortal
from pydantic import BaseModel

from app_server.client.app_server import AppServer
from app_server.client.event_stream import EventSubscription, TurnStream
from app_server.client.events import ServerEvent, ThreadEvent
from app_server.client.failures import AppServerError
from app_server.client.options import ListOptions, Prompt, TurnOptions
from app_server.client.thread_handle import ThreadHandle
from app_server.client.turn_handle import TurnHandle
from app_server_protocol.base import WireModel
from app_server_protocol.encoding import JsonSerializable
from app_server_protocol.method_table import ClientRequest
from app_server_protocol.v2.server import InitializeResponse
from app_server_protocol.v2.thread import Thread
from app_server_protocol.v2.thread_open import OpenedThread
from app_server_protocol.v2.turn import ReviewTarget

A = TypeVar("A")
E = TypeVar("E", bound=ServerEvent)
F = TypeVar("F")
M = TypeVar("M", bound=BaseModel)
P = TypeVar("P", bound=WireModel)
Q = ParamSpec("Q")
R = TypeVar("R", bound=JsonSerializable)
T = TypeVar("T")


OF_ANOTHER_PROCESS = "the server belongs to the process that this one was forked from; start another one here"

CANCELLED_WITHIN = 10.0
"""Timeout for a cancelled call to end, in seconds. An abandoned turn takes at most `turn_handle.INTERRUPT_WITHIN`."""


class LoopThread:
    """An event loop in a thread of its own, like that of `start_blocking_portal`. It differs in a process that was
    forked from this one: such a process has no such thread, and does not try to end it.
    """

    def __init__(self) -> None:
        self._process = os.getpid()
        self._started: Future[BlockingPortal] = Future()
        self._thread = threading.Thread(target=anyio.run, args=(self._run,), daemon=True)

    @property
    def elsewhere(self) -> bool:
        """Whether this is a forked process."""
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
        """Return the result of the coroutine. If the wait is interrupted, the coroutine is cancelled, and has a bounded
        time to end.
        """
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


class SyncFace(Generic[A]):
    """A wrapper of an asynchronous class, for code without an event loop."""

    def __init__(self, caller: PortalCaller, behind: A) -> None:
        self._caller, self._behind = caller, behind


def waits_for(
    method: Callable[Concatenate[A, Q], Awaitable[T]],
) -> Callable[Concatenate[SyncFace[A], Q], T]:
    """Return a method that waits for the result of an asynchronous method."""

    @wraps(method)
    def waiting(self: SyncFace[A], /, *arguments: Q.args, **options: Q.kwargs) -> T:
        return self._caller.call(partial(method, self._behind, *arguments, **options))

    return waiting


def opens(
    method: Callable[Concatenate[A, Q], Awaitable[T]], face: Callable[[PortalCaller, T], F]
) -> Callable[Concatenate[SyncFace[A], Q], F]:
    """Return a method that waits for an object of the asynchronous library, and wraps it."""

    @wraps(method)
    def opening(self: SyncFace[A], /, *arguments: Q.args, **options: Q.kwargs) -> F:
        caller = self._caller
        return face(caller, caller.call(partial(method, self._behind, *arguments, **options)))

    return opening


class SyncTurnHandle(SyncFace[TurnHandle]):
    """`TurnHandle` for code without an event loop."""

    @property
    def id(self) -> str:
        return self._behind.id

    @property
    def running(self) -> bool:
        return self._behind.running

    result = waits_for(TurnHandle.result)
    steer = waits_for(TurnHandle.steer)
    interrupt = waits_for(TurnHandle.interrupt)


class SyncTurnStream(SyncFace[TurnStream]):
    """`TurnStream` for code without an event loop."""

    @property
    def turn(self) -> SyncTurnHandle:
        return SyncTurnHandle(self._caller, self._behind.turn)

    def __iter__(self) -> Iterator[ThreadEvent]:
        return self._caller.iterate(lambda: anext(self._behind, None))

    result = waits_for(TurnStream.result)

    def __enter__(self) -> Self:
        self._caller.call(self._behind.__aenter__)
        return self

    def __exit__(self, *raised: object) -> None:
        if not self._caller.elsewhere:
            self._caller.call(partial(self._behind.__aexit__, *raised))


class SyncSubscription(SyncFace[EventSubscription[E]]):
    """`EventSubscription` for code without an event loop."""

    def __init__(self, caller: PortalCaller, subscribe: Callable[[], EventSubscription[E]]) -> None:
        async def subscribed() -> EventSubscription[E]:
            return subscribe()

        super().__init__(caller, caller.call(subscribed))

    def __iter__(self) -> Iterator[E]:
        return self._caller.iterate(lambda: anext(self._behind, None))

    def close(self) -> None:
        async def close() -> None:
            self._behind.close()

        if not self._caller.elsewhere:
            self._caller.call(close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


class SyncThreadHandle(SyncFace[ThreadHandle]):
    """`ThreadHandle` for code without an event loop."""

    @property
    def id(self) -> str:
        return self._behind.id

    @property
    def opened(self) -> OpenedThread:
        return self._behind.opened

    run = waits_for(ThreadHandle.run)

    def stream(self, prompt: Prompt, **options: Unpack[TurnOptions]) -> SyncTurnStream:
        """Run one turn and return its events: `for event in thread.stream("…")`."""
        return SyncTurnStream(self._caller, self._behind.stream(prompt, **options))

    def review(self, target: ReviewTarget) -> SyncTurnStream:
        """Run a review and return the events of its turn."""
        return SyncTurnStream(self._caller, self._behind.review(target))

    start_turn = opens(ThreadHandle.start_turn, SyncTurnHandle)

    def events(self) -> SyncSubscription[ThreadEvent]:
        return SyncSubscription(self._caller, self._behind.events)

    steer = waits_for(ThreadHandle.steer)
    interrupt = waits_for(ThreadHandle.interrupt)

    fork = opens(ThreadHandle.fork, lambda caller, copy: SyncThreadHandle(caller, copy))
    compact = waits_for(ThreadHandle.compact)
    read = waits_for(ThreadHandle.read)
    set_name = waits_for(ThreadHandle.set_name)
    archive = waits_for(ThreadHandle.archive)
    close = waits_for(ThreadHandle.close)


def connects(
    connecting: Callable[Q, AbstractAsyncContextManager[AppServer]],
) -> Callable[Concatenate[type[SyncAppServer], Q], AbstractContextManager[SyncAppServer]]:
    """Return a class method that connects like one of `AppServer`, for the duration of a block."""

    @contextmanager
    @wraps(connecting)
    def connected(
        cls: type[SyncAppServer], /, *arguments: Q.args, **options: Q.kwargs
    ) -> Iterator[SyncAppServer]:
        loop = LoopThread()
        with ExitStack() as stack:
            portal = stack.enter_context(loop)
            server = stack.enter_context(portal.wrap_async_context_manager(connecting(*arguments, **options)))
            try:
                yield cls(PortalCaller(portal, loop), server)
            finally:
                if loop.elsewhere:
                    stack.pop_all()

    return connected


class SyncAppServer(SyncFace[AppServer]):
    """`AppServer` for code without an event loop. Programs call `spawn` or `connect`. `on_approval` runs in a thread of
    its own, so it may wait for a person.
    """

    spawn = classmethod(connects(AppServer.spawn))
    connect = classmethod(connects(AppServer.connect))

    @property
    def info(self) -> InitializeResponse:
        return self._behind.info

    start_thread = opens(AppServer.start_thread, SyncThreadHandle)
    resume_thread = opens(AppServer.resume_thread, SyncThreadHandle)

    def threads(self, **options: Unpack[ListOptions]) -> Iterator[Thread]:
        pages = self._behind.threads(**options)
        return self._caller.iterate(lambda: anext(pages, None))

    models = waits_for(AppServer.models)

    def events(self) -> SyncSubscription[ServerEvent]:
        return SyncSubscription(self._caller, self._behind.events)

    def request(self, row: ClientRequest[P, R], params: P) -> R:
        return self._caller.call(partial(self._behind.request, row, params))

    request_raw = waits_for(AppServer.request_raw)
