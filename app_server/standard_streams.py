"""The standard streams, whatever the process was started with: closed, full, without a reader, in any encoding.

Commands print as if nothing could go wrong; `ended_in_order` is the one place that says what did. Fast to import.
"""

from __future__ import annotations

import io
import logging
import os
import select
import signal
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

log = logging.getLogger(__name__)


def replace_closed() -> None:
    """Give each standard descriptor that is closed a file: else the next one that is opened would take its number, and
    receive what is printed. stdin has ended then, stdout cannot be written, stderr is thrown away.
    """
    for number, name, mode in (
        (0, "stdin", os.O_RDONLY),
        (1, "stdout", os.O_RDONLY),
        (2, "stderr", os.O_RDWR),
    ):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, mode), True)  # the lowest number that is free
            stream = open(number, "w" if number else "r", encoding="utf-8", closefd=False)  # noqa: SIM115
            setattr(sys, name, stream)


def prepare_for_text() -> None:
    """Let stdout and stderr take every character, as an escape where their encoding has none, and fail in order."""
    sys.stdout = _text(StandardWriter(1, "w", closefd=False), sys.stdout, live=sys.stdout.isatty())
    sys.stderr = _text(NoticeWriter(2, "w", closefd=False), sys.stderr, live=True)


def take_stdout() -> TextIO:
    """Return stdout for the results of a command, and send to stderr what anything else in this process prints."""
    out = StandardWriter(os.dup(1), "w")
    os.dup2(2, 1)
    return _text(out, sys.stdout, live=out.isatty())


def _text(out: io.FileIO, like: TextIO, *, live: bool) -> TextIO:
    return io.TextIOWrapper(io.BufferedWriter(out), like.encoding, "backslashreplace", line_buffering=live)


class StandardWriter(io.FileIO):
    """Writes to a descriptor, also to one that another program has made non-blocking."""

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            while (written := super().write(data)) is None:
                select.select((), (self,), ())
        except OSError as error:
            raise StdoutFailed(error.errno, error.strerror) from error
        return written


class NoticeWriter(StandardWriter):
    """Writes to stderr, or nowhere if that fails: a notice that cannot be written must not cost the result."""

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except StdoutFailed:
            return memoryview(data).nbytes


class StdoutFailed(OSError):
    """Failure to write what is printed."""


def check_stdout() -> None:
    """Raise StdoutFailed where nothing can be printed, before anything is begun that costs."""
    try:
        os.write(1, b"")
    except OSError as error:
        raise StdoutFailed(error.errno, error.strerror) from error


def throw_away_stdout() -> None:
    """Throw away what is printed from now on, with what the interpreter would write at its end."""
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


def cancel_on_interrupt() -> None:
    """Let Ctrl-C cancel what runs in the event loop, so that it cleans up, and not end the process at once."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def ended_in_order(name: str, run: Callable[[], int]) -> int:
    """Run a command and return its exit status. What the machine refuses is told in a line, and not as a traceback."""
    try:
        try:
            return run()
        finally:
            sys.stdout.flush()
    except (OSError, BaseExceptionGroup, KeyboardInterrupt) as raised:
        error = _first(raised)
        if isinstance(error, KeyboardInterrupt):
            return 128 + signal.SIGINT
        if not isinstance(error, OSError):
            raise
        log.debug("%s failed", name, exc_info=raised)
        why = error.strerror or str(error)
        if isinstance(error, StdoutFailed):
            why = f"cannot write to stdout: {why}"
            throw_away_stdout()
        elif error.filename:
            why = f"{os.fsdecode(error.filename)}: {why}"
        if not isinstance(error.__cause__, BrokenPipeError):  # whoever reads has seen enough
            complain(name, why)
        return 1


def complain(program: str, what: str, advice: str = "", *, file: TextIO | None = None) -> None:
    """Say on stderr, or in `file`, what went wrong in a command, and in a second line what to do. The one form of such
    messages.
    """
    print(f"{program}: {what}", file=file or sys.stderr)
    if advice:
        print(f"→ {advice}", file=file or sys.stderr)


def _first(error: BaseException) -> BaseException:
    """Return the error itself; of a group an interrupt, or else the first error where all are OSErrors."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    if error.subgroup(KeyboardInterrupt):
        return KeyboardInterrupt()
    return error if error.split(OSError)[1] else _first(error.exceptions[0])
