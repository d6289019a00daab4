"""Runs the notification program: starts it without waiting, and reaps it when it ends.

It inherits the user's environment, as from the user's shell, and may outlive the server. It starts in `/`: the server's
own folder may be a workspace, whose files interpreters would run.
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
"""Maximum sizes of the message: first the limit for one argument, then smaller ones that may fit the total limit."""

MAX_RUNNING = 8
"""Maximum number of running programs: programs that hang must not accumulate."""


@dataclass(slots=True)
class NotifyProgram:
    """`command` is empty if none is configured."""

    command: Sequence[str]
    environment: Mapping[str, str] = field(repr=False)
    """The user's environment at the start of the server."""
    _running: list[subprocess.Popen[bytes]] = field(default_factory=list, repr=False)

    async def notify(self, message: str) -> None:
        """Starts the program with `message` as its last argument. Never raises; a failure is logged."""
        if self.command:
            await run_in_thread(self._start, message)

    def _open(self, message: str) -> subprocess.Popen[bytes] | None:
        """Starts the program with the longest message that fits: environment and other arguments share the limit."""
        for limit in LIMITS:
            fitted = fit(message, limit)
            if fitted != message:
                log.info("the message to the notify program is shortened to %d bytes", limit)
            try:
                return subprocess.Popen(
                    [*self.command, fitted],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    cwd="/",
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
        # A daemon thread waits for the process: it is reaped at once, and the server's exit does not wait.
        with contextlib.suppress(RuntimeError):  # without a thread, it is reaped when the next program starts
            threading.Thread(target=process.wait, name="notify program", daemon=True).start()
