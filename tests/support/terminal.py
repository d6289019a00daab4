"""A terminal for tests: they press keys, read the screen and change the size. A program runs in it, or code of the test
itself.
"""

import fcntl
import os
import select
import signal
import struct
import subprocess
import termios
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import pyte

from tests.support.waiting import wait_until

DIM, DIM_COLOUR = 2, 90
"""SGR codes of dim text and of bright black. pyte does not know dim text; most terminals show it as bright black."""


class _Screen(pyte.HistoryScreen):
    """Screen that answers the queries of programs to their terminal."""

    def __init__(self, columns: int, rows: int, reply: int) -> None:
        super().__init__(columns, rows, history=5000, ratio=0.5)
        self._reply = reply
        self.bells = self.moves = 0

    def cursor_up(self, count: int | None = None) -> None:
        self.moves += 1
        super().cursor_up(count)

    def erase_in_display(self, how: int = 0, *args: object, **kwargs: object) -> None:
        self.moves += 1
        super().erase_in_display(how, *args, **kwargs)

    def bell(self, *_: object) -> None:
        self.bells += 1

    def write_process_input(self, data: str) -> None:
        os.write(self._reply, data.encode())

    def select_graphic_rendition(self, *attributes: int, **more: bool) -> None:
        if not {38, 48} & set(attributes):
            attributes = tuple(DIM_COLOUR if each == DIM else each for each in attributes)
        super().select_graphic_rendition(*attributes, **more)


class Terminal:
    """Pseudo-terminal. A program reads keys from `inner` and writes to it."""

    def __init__(self, columns: int = 90, rows: int = 30) -> None:
        self._fd, self.inner = os.openpty()
        self._process: subprocess.Popen[bytes] | None = None
        self._set_size(columns, rows)
        self.screen = _Screen(columns, rows, self._fd)
        self._stream = pyte.ByteStream(self.screen)

    def start(self, command: Sequence[str], *, environment: Mapping[str, str], cwd: Path) -> Self:
        """Run a program with this as its controlling terminal."""
        self._process = subprocess.Popen(
            command,
            stdin=self.inner,
            stdout=self.inner,
            stderr=self.inner,
            cwd=cwd,
            env={**environment, "TERM": "xterm-256color"},
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        return self

    @property
    def columns(self) -> int:
        return self.screen.columns

    @property
    def text(self) -> str:
        """Text that was shown and not overwritten, line by line, scrolled-off lines included."""
        above = ["".join(line[x].data for x in range(self.columns)) for line in self.screen.history.top]
        return "\n".join(line.rstrip() for line in [*above, *self.screen.display])

    def press(self, keys: str) -> None:
        os.write(self._fd, keys.encode())

    def press_until(self, keys: str, true: Callable[[], bool]) -> None:
        """Press keys repeatedly until the condition holds."""

        def press_and_read() -> None:
            self.press(keys)
            self._read(0.1)

        wait_until(true, lambda: self.text, press_and_read)

    def say(self, line: str) -> None:
        self.press(line + "\r")

    def wait_for(self, text: str, times: int = 1) -> str:
        """Read until the text was shown `times` times; return the screen. Raises AssertionError."""
        self._wait(lambda: self.text.count(text) >= times, f"no {text!r} on the screen")
        return self.text

    def wait_to_see(self, *texts: str) -> None:
        """Read until all texts are on the visible part of the screen."""
        self._wait(
            lambda: all(text in "\n".join(self.screen.display) for text in texts),
            f"not all of {texts!r} is visible",
        )

    def wait_until_gone(self, text: str) -> str:
        """Read until the text is overwritten."""
        self._wait(lambda: text not in self.text, f"still {text!r} on the screen")
        return self.text

    def wait_for_bells(self, number: int) -> None:
        """Read until the bell rang that many times."""
        self._wait(lambda: self.screen.bells >= number, f"no {number} bells")

    def wait_for_file(self, path: Path) -> None:
        """Read until the file exists."""
        self._wait(path.exists, f"no {path}", 0.05)

    def wait_for_end(self) -> int:
        """Wait for the program to end; return its exit status."""
        assert self._process is not None
        process = self._process
        self._wait(lambda: process.poll() is not None, "it does not end", 0.05)
        return process.returncode

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the program."""
        assert self._process is not None
        self._process.send_signal(number)

    def resize(self, columns: int, rows: int) -> None:
        """Change the size. The terminal sends a signal to the program that it controls."""
        self._set_size(columns, rows)
        self.screen.resize(rows, columns)

    def read_on(self) -> None:
        """Read the available output, so that the writer is not blocked."""
        self._read(0.02)

    def _wait(self, true: Callable[[], bool], what: str, seconds: float = 0.5) -> None:
        wait_until(true, lambda: f"{what}:\n{self.text}", lambda: self._read(seconds))

    def _set_size(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def _read(self, seconds: float) -> None:
        if select.select([self._fd], [], [], seconds)[0]:
            try:
                self._stream.feed(os.read(self._fd, 1 << 16))
            except OSError:
                return  # the program has ended

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            if self._process.poll() is None:
                self._process.send_signal(signal.SIGKILL)
            self._process.wait()
        for end in (self._fd, self.inner):
            os.close(end)
