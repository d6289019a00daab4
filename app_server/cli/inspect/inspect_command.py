"""`app-server inspect`: passes a server's stdio through, and shows or records the messages.

There are two processes. The one that the client started only passes bytes (`passthrough`). The other, the observer,
gets a copy of every chunk through a pipe and does all slow work. No module of the server is imported here: any server
that speaks JSON-RPC over stdio, one message per line, can be inspected.

This module is the composition root of the inspector: it alone reads the environment and the clock.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import importlib.util
import os
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path

from app_server.cli.inspect import page_server, session_replay
from app_server.cli.inspect.passthrough import BoundedBacklog, FileBacklog, Tap, end_like, pass_through
from app_server.cli.inspect.session_records import NotASession, Recorder, SessionHead
from app_server.cli.named_files import new_private_file
from app_server.server.bootstrap.standard_streams import complain

NAME = "app-server inspect"

UNREAD = 64 << 20
"""Maximum size of data that waits for the page, in bytes; a recording keeps all."""
PIPE_SIZE = 1 << 20
PAGE_LEAVES_WITHIN = 1.0
"""Timeout for the last messages to reach the page, in seconds; a recording has no timeout."""
NOT_FOUND, NOT_EXECUTABLE, MISUSED = 127, 126, 2


def run_inspector(args: argparse.Namespace) -> int:
    """Run the inspector. Return the exit status, which is that of the server if one is run."""
    if not args.server and not args.open:
        return _fail(MISUSED, "no server was named", "as in `app-server inspect -- SERVER ARG...`")
    needs_page = bool(args.page or args.open or not (args.record or args.replay))
    if needs_page and not page_is_installed():
        return _fail(
            MISUSED,
            "the page needs Starlette and uvicorn",
            "pip install 'app-server-agent[inspect]' where app-server is installed; `--record FILE` works without",
        )
    if args.open or args.replay:
        return _saved(args)
    return _inspect(args)


def _saved(args: argparse.Namespace) -> int:
    """Show or replay a saved session. Its modules are not loaded for passing bytes."""
    path = Path(args.open or args.replay)
    try:
        if not args.open:
            return _replay(args, path)
        with contextlib.suppress(KeyboardInterrupt):
            page_server.view(path, args.server, os.environ, args.url_file or "")
    except NotASession as error:
        return _fail(MISUSED, f"{path} is no session: {error}", "`--record FILE` writes one")
    except OSError as error:
        named = error.filename or path
        return _fail(MISUSED, f"cannot open {named}: {error.strerror}", "name a file that can be read")
    return 0


def _replay(args: argparse.Namespace, path: Path) -> int:
    """Return 0 if the replay matched the recording and broke no rule. Otherwise return 1, with the problems on
    stderr.
    """
    head = SessionHead(args.server, datetime.now().astimezone().isoformat(timespec="milliseconds"))
    try:
        recorder = Recorder(new_private_file(args.record), head) if args.record else None
    except OSError as error:
        return _cannot_write(args.record, error)
    problems = session_replay.play_file(path, args.server, recorder)
    for problem in problems:
        _fail(1, problem)
    if problems and args.record:
        complain(NAME, "not as recorded", f"`{NAME} --open {args.record}` shows what went on")
    return 1 if problems else 0


def page_is_installed() -> bool:
    return all(importlib.util.find_spec(name) is not None for name in ("starlette", "uvicorn"))


def _inspect(args: argparse.Namespace) -> int:
    recording = None
    if args.record:
        try:
            recording = new_private_file(args.record)
        except OSError as error:
            return _cannot_write(args.record, error)
    reading, writing = os.pipe()
    page = "page" if args.page or not args.record else ""
    completed, complete = os.pipe()
    kept = ("", "") if recording is None else (str(recording), str(complete))
    observing = (str(reading), *kept, page, args.url_file or "", "--", *args.server)  # see `observer.main`
    if hasattr(fcntl, "F_SETPIPE_SZ"):
        try:
            fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, PIPE_SIZE)
        except OSError:
            pass
    subprocess.Popen(
        (sys.executable, "-P", "-m", "app_server.cli.inspect.observer", *observing),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        pass_fds=(reading,) if recording is None else (reading, recording, complete),
        process_group=0,  # a session of its own would get as much of the processors as the server's
        env=os.environ,
    )
    os.close(reading)
    os.close(complete)
    if recording is not None:
        os.close(recording)
    begin = time.monotonic_ns()
    backlog = FileBacklog() if args.record else BoundedBacklog(UNREAD)
    tap = Tap(writing, backlog, lambda: time.monotonic_ns() - begin)
    try:
        status = pass_through(args.server, os.environ, tap)
    except OSError as error:
        tap.close(PAGE_LEAVES_WITHIN)
        missing = isinstance(error, FileNotFoundError)
        return _fail(
            NOT_FOUND if missing else NOT_EXECUTABLE,
            f"cannot start {args.server[0]}: {error.strerror}",
            "behind `--` is the command that starts the server",
        )
    lost = bool(args.record) and tap.gone
    tap.close(None if args.record else PAGE_LEAVES_WITHIN)
    if args.record:
        lost |= not os.read(completed, 1)  # the observer continues for pages that are open
    if lost:
        _fail(status, f"the recording {args.record} is not complete", "is there room on its disk?")
    return end_like(status)


def _cannot_write(path: str, error: OSError) -> int:
    return _fail(MISUSED, f"cannot write {path}: {error.strerror}", "name a file in a folder of yours")


def _fail(status: int, what: str, advice: str = "") -> int:
    complain(NAME, what, advice)  # on stderr, because the server's stdout must not be changed
    return status
