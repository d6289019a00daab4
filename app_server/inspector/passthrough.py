"""Runs a server and passes its stdio through, byte for byte: half lines, huge lines and whatever is no JSON.

Each direction is a thread that reads, hands a copy to the tap, and writes. A copy comes before the bytes go on, so that
the observer sees a request before its answer. The ends of the streams, signals and the exit status are passed on too.
"""

from __future__ import annotations

import os
import resource
import select
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from typing import IO

from app_server.inspector.session_records import Source
from app_server.inspector.tap import Tap
from app_server.transport.claim import write_all

READ_SIZE = 1 << 16
"""Bytes per read, which is what a pipe holds."""

FORWARDED = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGCONT", "SIGWINCH")
FROM_TERMINAL = ("SIGINT", "SIGQUIT", "SIGWINCH")
"""Signals that a terminal sends to the server too, as it is in the same process group."""

GATHER_SECONDS = 0.001
"""Output that comes faster than this is passed in pieces of so long: a read, a copy and a write for each message would
take as much of the processors as some servers do for it.
"""

GRACE = 2.0
"""Seconds to wait for the end of the server's output after its exit: a child of it may hold the pipe open."""


def pass_through(command: Sequence[str], environment: Mapping[str, str], tap: Tap) -> int:
    """Run the server; return its code as `subprocess` has it, negative if a signal ended it. Raises OSError if it
    cannot be started.
    """
    pending: list[int] = []
    started: list[subprocess.Popen[bytes]] = []

    def forward(number: int, frame: object) -> None:
        if signal.Signals(number).name in FROM_TERMINAL and _in_foreground():
            return
        if started:
            started[0].send_signal(number)
        else:
            pending.append(number)

    ignored = [name for name in FORWARDED if signal.getsignal(getattr(signal, name)) is signal.SIG_IGN]
    for name in FORWARDED:
        if name not in ignored:  # the server inherits which signals are ignored
            signal.signal(getattr(signal, name), forward)
    pipe = subprocess.PIPE
    server = subprocess.Popen(
        command,
        bufsize=0,
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        close_fds=False,  # what the client lets its server inherit; nothing of ours is inheritable
        env=environment,
    )
    started.append(server)
    for name in ignored:
        signal.signal(getattr(signal, name), forward)
    for number in pending:
        server.send_signal(number)
    assert server.stdin is not None
    assert server.stdout is not None
    assert server.stderr is not None
    tap.event("started", process=server.pid)
    threading.Thread(target=_pass_input, args=(server.stdin, tap), daemon=True).start()
    outputs = [
        threading.Thread(target=_pass_output, args=(source, pipe, to, tap), daemon=True)
        for source, pipe, to in ((Source.SERVER, server.stdout, 1), (Source.STDERR, server.stderr, 2))
    ]
    for thread in outputs:
        thread.start()
    status = server.wait()
    for thread in outputs:
        thread.join(GRACE)
    tap.event("exited", status=status)
    return status


def end_like(status: int) -> int:
    """Return the exit status for a return code; if a signal ended the server, end this process by it, too."""
    if status >= 0:
        return status
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the server has left its own, where that is wanted
    if -status != signal.SIGKILL:
        signal.signal(-status, signal.SIG_DFL)
    os.kill(os.getpid(), -status)
    return 128 - status


def _pass_input(to: IO[bytes], tap: Tap) -> None:
    while data := _read(0):
        tap.put(Source.CLIENT, data)
        if not write_all(to.fileno(), data):
            _replace(0)  # the server reads no more: the client's next write fails, as it would without us
            break
    tap.put(Source.CLIENT, b"")
    to.close()


def _pass_output(source: Source, pipe: IO[bytes], to: int, tap: Tap) -> None:
    passed = 0.0
    while data := _read(pipe.fileno()):
        tap.put(source, data)
        if not write_all(to, data):
            break
        before, passed = passed, time.monotonic()
        if passed - before < GATHER_SECONDS:
            time.sleep(GATHER_SECONDS)
    tap.put(source, b"")
    pipe.close()
    if source is Source.SERVER:
        _replace(to)


def _read(fd: int) -> bytes:
    while True:
        try:
            return os.read(fd, READ_SIZE)
        except BlockingIOError:
            select.select([fd], [], [])
        except OSError:
            return b""


def _replace(fd: int) -> None:
    """Close our end of the client's pipe, and keep its number taken."""
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, fd)
    os.close(null)


def _in_foreground() -> bool:
    try:
        terminal = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)
