"""Stands between this server and one MCP server process, so that nothing of it is left behind.

Run as `python -I -S guard.py LIFELINE REPORT PROGRAM ARG...`. It starts the program with its own stdin,
stdout and stderr, says on REPORT whether that went well and keeps REPORT open until the whole tree has ended.
The server holds the other end of LIFELINE: a byte means SIGTERM, the end of file, which also `kill -9` of the
server brings about, means kill everything. As a subreaper it inherits what the program daemonised. Standard
library only; its own package is found by path, since it runs without site-packages.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys
import time

if __name__ == "__main__":
    sys.path.append(os.path.abspath(__file__).rsplit(os.sep, 4)[0])

from app_server.core.exec import descendants

PR_SET_CHILD_SUBREAPER = 36
KILL_SECONDS = 2.0
RESET_SIGNALS = tuple(
    number
    for number in (
        signal.SIGPIPE,
        getattr(signal, "SIGXFSZ", None),
        signal.SIGINT,
        signal.SIGTERM,
        signal.SIGHUP,
    )
    if number
)
"""Python ignores or handles these; a program starts with the defaults."""


def main(lifeline: int, report: int, argv: list[str]) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    for descriptor in (lifeline, report):
        os.set_inheritable(descriptor, False)
    wakeup, notice = os.pipe()
    os.set_blocking(wakeup, False)
    os.set_blocking(notice, False)
    signal.signal(signal.SIGCHLD, _noticed)
    signal.set_wakeup_fd(notice, warn_on_full_buffer=False)
    try:
        child = os.posix_spawn(argv[0], argv, os.environ, setsid=True, setsigmask=(), setsigdef=RESET_SIGNALS)
    except OSError as error:
        os.write(report, str(error.errno).encode())
        return
    os.write(report, b"0")
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):  # so that the program's end is seen as the end of its streams
        os.dup2(null, stream)
    status = _end_tree(child, _watch(lifeline, wakeup, child))
    sys.exit(os.waitstatus_to_exitcode(status) & 0xFF)


def _noticed(number: int, frame: object) -> None:
    """The wakeup descriptor tells; a handler has to exist for that."""


def _watch(lifeline: int, wakeup: int, child: int) -> int | None:
    """The wait status of the program, or None where the server let go first."""
    while True:
        ready, _, _ = select.select([lifeline, wakeup], [], [])
        if wakeup in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(wakeup, 512)
            with contextlib.suppress(ChildProcessError):
                while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                    if ended[0] == child:
                        return ended[1]
        if lifeline in ready:
            if not os.read(lifeline, 1):
                return None
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child, signal.SIGTERM)


def _end_tree(child: int, status: int | None) -> int:
    """Kills and reaps everything below this process. Gives the wait status of the program."""
    deadline = time.monotonic() + KILL_SECONDS
    while time.monotonic() < deadline:
        descendants.kill_below(os.getpid(), child)
        try:
            pid, ended = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            break
        if pid == child:
            status = ended
        elif pid == 0:
            time.sleep(0.001)
    return int(signal.SIGKILL) if status is None else status


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
