"""The user's notification program: its message, and how it is started and, when it ends, reaped.

The message is one JSON object, the last argument. Programs parse that argument, so it must stay valid JSON with all its
fields. If it is too long for an argument, its texts are shortened and end with an ellipsis.

The program inherits the user's environment, as from the user's shell, and may outlive the server. It starts in `/`: the
server's own folder may be a workspace, whose files interpreters would run.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import subprocess
import threading
from collections.abc import Mapping, Sequence

from app_server.engine.support.worker_threads import run_in_thread
from app_server_protocol.encoding import Json

MAX_ARGUMENT_BYTES = 120_000
"""Linux limits an argument to 128 KiB; with a longer one, the program would not start."""

ELLIPSIS = "…"


def turn_complete(
    thread_id: str,
    turn_id: str,
    cwd: str,
    input_messages: Sequence[str],
    last_assistant_message: str | None,
) -> str:
    """Return the message for a completed turn. `input_messages` are the user's texts in it."""
    return _dumps(
        {
            "type": "agent-turn-complete",
            "thread-id": thread_id,
            "turn-id": turn_id,
            "cwd": cwd,
            "input-messages": list(input_messages),
            "last-assistant-message": last_assistant_message,
        }
    )


def fit(message: str, limit: int) -> str:
    """Return the message in at most `limit` bytes, if its other fields permit: with shorter texts of all kinds, and of
    very many messages of the user the first ones.
    """
    if len(message.encode()) <= limit:
        return message
    notice: dict[str, Json] = json.loads(message)
    inputs, last, length = notice["input-messages"], notice["last-assistant-message"], limit
    while len(message.encode()) > limit and length > 1:
        length //= 2
        kept = [_cut(text, length) for text in inputs[:length]]
        if len(inputs) > length:
            kept.append(ELLIPSIS)
        shorter = None if last is None else _cut(last, length)
        message = _dumps({**notice, "input-messages": kept, "last-assistant-message": shorter})
    return message


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + ELLIPSIS


def _dumps(value: Json) -> str:
    """Return JSON that is a valid argument: without lone surrogates, with NULs escaped."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


log = logging.getLogger(__name__)

LIMITS = (MAX_ARGUMENT_BYTES, 30_000, 6_000)
"""Maximum sizes of the message: first the limit for one argument, then smaller ones that may fit the total limit."""

MAX_RUNNING = 8
"""Maximum number of running programs: programs that hang must not accumulate."""


class NotifyProgram:
    """Starts the user's notification program. `command` is empty if none is configured."""

    def __init__(self, command: Sequence[str]) -> None:
        self.command = command
        self._running: list[subprocess.Popen[bytes]] = []

    async def notify(self, message: str, environment: Mapping[str, str]) -> None:
        """Start the program with `message` as its last argument. Never raises; a failure is logged."""
        if self.command:
            await run_in_thread(self._start, message, environment)

    def _open(self, message: str, environment: Mapping[str, str]) -> subprocess.Popen[bytes] | None:
        """Start the program with the longest message that fits: environment and other arguments share the limit."""
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
                    env=environment,
                    start_new_session=True,
                )
            except OSError as error:
                if error.errno != errno.E2BIG:
                    raise
        return None

    def _start(self, message: str, environment: Mapping[str, str]) -> None:
        self._running = [process for process in self._running if process.poll() is None]
        if len(self._running) >= MAX_RUNNING:
            log.warning("the notify program is not started: %d of it still run", MAX_RUNNING)
            return
        try:
            process = self._open(message, environment)
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
