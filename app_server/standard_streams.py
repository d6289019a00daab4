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
from typing import TYPE_CHECKING

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
    for number, name in ((1, "stdout"), (2, "stderr")):
        stream = getattr(sys, name)
        out = io.BufferedWriter(StandardWriter(number, "w", closefd=False))
        live = number == 2 or stream.isatty()
        text = io.TextIOWrapper(out, stream.encoding, "backslashreplace", line_buffering=live)
        setattr(sys, name, text)


class StandardWriter(io.FileIO):
    """Writes to a descriptor. Where that fails, stdout raises StdoutFailed and stderr nothing: a notice that cannot be
    written must not cost the result.
    """

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            while (written := super().write(data)) is None:
                select.select((), (self,), ())  # another program has made it non-blocking
        except OSError as error:
            if self.fileno() == 1:
                raise StdoutFailed(error.errno, error.strerror) from error
            return memoryview(data).nbytes
        return written


class StdoutFailed(OSError):
    """What is printed cannot be written."""


def check_stdout() -> None:
    """Raise StdoutFailed where nothing can be printed, before anything is begun that costs."""
    try:
        os.write(1, b"")
    except OSError as error:
        raise StdoutFailed(error.errno, error.strerror) from error


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
            sys.stdout = io.StringIO()  # the interpreter would write the rest at its end
        elif error.filename:
            why = f"{os.fsdecode(error.filename)}: {why}"
        if not isinstance(error.__cause__, BrokenPipeError):  # whoever reads has seen enough
            print(f"{name}: {why}", file=sys.stderr)  # noqa: T201
        return 1


def _first(error: BaseException) -> BaseException:
    """The error itself; of a group an interrupt, or else the first error where all are OSErrors."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    if error.subgroup(KeyboardInterrupt):
        return KeyboardInterrupt()
    return error if error.split(OSError)[1] else _first(error.exceptions[0])
