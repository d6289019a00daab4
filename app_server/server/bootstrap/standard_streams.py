"""The standard streams of a process, which may be closed, full, without a reader, or in any encoding.

Commands print without checking for errors; `ended_in_order` is the only function that reports them. Fast to import.
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
    """Open a file for each closed standard descriptor: otherwise the next opened file would get its number, and receive
    the printed text. stdin is then at its end, writing to stdout fails, and stderr is discarded.
    """
    for number, name, mode in (
        (0, "stdin", os.O_RDONLY),
        (1, "stdout", os.O_RDONLY),
        (2, "stderr", os.O_RDWR),
    ):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, mode), True)  # gets the lowest free number
            stream = open(number, "w" if number else "r", encoding="utf-8", closefd=False)  # noqa: SIM115
            setattr(sys, name, stream)


def prepare_for_text() -> None:
    """Make stdout and stderr accept every character, as an escape if their encoding has none, and report errors of
    writes.
    """
    sys.stdout = _text(StandardWriter(1, "w", closefd=False), sys.stdout, live=sys.stdout.isatty())
    sys.stderr = _text(NoticeWriter(2, "w", closefd=False), sys.stderr, live=True)


def take_stdout() -> TextIO:
    """Return stdout for the results of a command; all other output of this process goes to stderr."""
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
    """Writes to stderr, and ignores errors: a notice that cannot be written must not cost the result."""

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except StdoutFailed:
            return memoryview(data).nbytes


class StdoutFailed(OSError):
    """Failure to write printed text."""


def check_stdout() -> None:
    """Check that stdout can be written, before any work that costs. Raises StdoutFailed if it cannot."""
    try:
        os.write(1, b"")
    except OSError as error:
        raise StdoutFailed(error.errno, error.strerror) from error


def throw_away_stdout() -> None:
    """Discard all output from now on, including what the interpreter would write at its end."""
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


def cancel_on_interrupt() -> None:
    """Make Ctrl-C cancel the work in the event loop, so that it cleans up, instead of ending the process at once."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def ended_in_order(name: str, run: Callable[[], int]) -> int:
    """Run a command and return its exit status. Errors of the operating system are reported in one line instead of a
    traceback.
    """
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
        if not isinstance(error.__cause__, BrokenPipeError):  # the reader wants no more output
            complain(name, why)
        return 1


def complain(program: str, what: str, advice: str = "", *, file: TextIO | None = None) -> None:
    """Print on stderr, or in `file`, the problem of a command, and advice in a second line. The only form of such
    messages.
    """
    print(f"{program}: {what}", file=file or sys.stderr)
    if advice:
        print(f"→ {advice}", file=file or sys.stderr)


def _first(error: BaseException) -> BaseException:
    """Return the error itself; of a group an interrupt, or else the first error if all are OSErrors."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    if error.subgroup(KeyboardInterrupt):
        return KeyboardInterrupt()
    return error if error.split(OSError)[1] else _first(error.exceptions[0])
