"""The portal below the classes of `client.sync`: an event loop in a thread of its own, and calls into it.

If an exception of the calling thread (Ctrl-C) ends a call, the call is cancelled in the event loop, which interrupts
the turn of a `run` or of a stream.
"""

from __future__ import annotations

import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, ExitStack, contextmanager
from types import TracebackType
from typing import Generic, TypeVar

import anyio
from anyio.from_thread import BlockingPortal

from app_server.client.failures import AppServerError

A = TypeVar("A")
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

    def make(self, function: Callable[[], T]) -> T:
        """Return the result of a plain function, which is called in the loop."""

        async def made() -> T:
            return function()

        return self.call(made)

    def iterate(self, events: AsyncIterator[T]) -> Iterator[T]:
        """Yield what an asynchronous iterator yields."""
        while (event := self.call(lambda: anext(events, None))) is not None:
            yield event

    def leave(self, function: Callable[[], Awaitable[object]]) -> None:
        """End something. A forked process leaves that to the first one."""
        if not self.elsewhere:
            self.call(function)


class SyncFace(Generic[A]):
    """A wrapper of an asynchronous class, for code without an event loop."""

    def __init__(self, caller: PortalCaller, behind: A) -> None:
        self._caller, self._behind = caller, behind


@contextmanager
def connected(connection: AbstractAsyncContextManager[A]) -> Iterator[tuple[PortalCaller, A]]:
    """Enter an asynchronous context in a loop of its own, for a block. A forked process ends neither."""
    loop = LoopThread()
    with ExitStack() as stack:
        portal = stack.enter_context(loop)
        server = stack.enter_context(portal.wrap_async_context_manager(connection))
        try:
            yield PortalCaller(portal, loop), server
        finally:
            if loop.elsewhere:
                stack.pop_all()
