"""Runs the notify program: started and forgotten, reaped when it ends, never waited for by a turn.

It runs with the user's own environment, as the user's shell would start it, and may outlive the server.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import field

from app_server.core.notify.message import MAX_ARGUMENT_BYTES, fit
from app_server.core.threads import run_in_thread
from protocol.records import dataclass

log = logging.getLogger(__name__)

LIMITS = (MAX_ARGUMENT_BYTES, 30_000, 6_000)
"""So long the message may be: at first as long as one argument, then what may still fit with the others."""

MAX_RUNNING = 8
"""A program that hangs must not pile up."""


@dataclass(slots=True)
class NotifyProgram:
    """`command` is empty where the user wants none."""

    command: Sequence[str]
    environment: Mapping[str, str] = field(repr=False)
    """The user's environment, as the server was started with."""
    _running: list[subprocess.Popen[bytes]] = field(default_factory=list, repr=False)

    async def send(self, message: str) -> None:
        """Starts the program with `message` as its last argument. Never raises; a failure is logged."""
        if self.command:
            await run_in_thread(self._start, message)

    def _open(self, message: str) -> subprocess.Popen[bytes] | None:
        """With as much of the message as the system takes; the environment and other arguments count, too."""
        for limit in LIMITS:
            told = fit(message, limit)
            if told != message:
                log.info("the message to the notify program is shortened to %d bytes", limit)
            try:
                return subprocess.Popen(
                    [*self.command, told],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env=self.environment,
                    start_new_session=True,
                )
            except OSError as error:
                if error.errno != errno.E2BIG:
                    raise
        return None

    def _start(self, message: str) -> None:
        self._running = [process for process in self._running if process.poll() is None]
        if len(self._running) >= MAX_RUNNING:
            log.warning("the notify program is not started: %d of it still run", MAX_RUNNING)
            return
        try:
            process = self._open(message)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "its arguments cannot be used"
            log.warning("the notify program cannot be started: %s", reason)
            return
        if process is None:
            log.warning("the notify program is not started: its arguments and environment are too long")
            return
        self._running.append(process)
        # Waiting in a thread of its own: whoever ends is reaped at once, and a server that ends does not wait.
        with contextlib.suppress(RuntimeError):  # no thread now: it is reaped when the next one is started
            threading.Thread(target=process.wait, name="notify program", daemon=True).start()
