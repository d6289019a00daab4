"""A terminal with a program in it: keys go in, the screen is read, the size changes."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import pyte

PATIENCE = 40.0
"""Seconds that anything may take to appear. Nothing waits for it unless something hangs."""


class _Screen(pyte.HistoryScreen):
    """Answers what programs ask a terminal."""

    def __init__(self, columns: int, rows: int, reply: int) -> None:
        super().__init__(columns, rows, history=5000, ratio=0.5)
        self._reply = reply

    def write_process_input(self, data: str) -> None:
        os.write(self._reply, data.encode())


class Terminal:
    def __init__(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        cwd: Path,
        columns: int = 90,
        rows: int = 30,
    ) -> None:
        self._fd, inner = os.openpty()
        self._resize(columns, rows)
        self._process = subprocess.Popen(
            command,
            stdin=inner,
            stdout=inner,
            stderr=inner,
            cwd=cwd,
            env={**environment, "TERM": "xterm-256color"},
            start_new_session=True,
        )
        os.close(inner)
        self._screen = _Screen(columns, rows, self._fd)
        self._stream = pyte.ByteStream(self._screen)

    @property
    def text(self) -> str:
        """Everything that was shown and not painted over, line by line."""
        columns = self._screen.columns
        above = ["".join(line[x].data for x in range(columns)) for line in self._screen.history.top]
        return "\n".join(line.rstrip() for line in [*above, *self._screen.display])

    def press(self, keys: str) -> None:
        os.write(self._fd, keys.encode())

    def say(self, line: str) -> None:
        self.press(line + "\r")

    def wait_for(self, text: str, times: int = 1) -> str:
        """Read until the text was shown so many times; gives the screen. Raises AssertionError."""
        deadline = time.monotonic() + PATIENCE
        while self.text.count(text) < times:
            assert time.monotonic() < deadline, f"no {text!r} on the screen:\n{self.text}"
            self._read(0.5)
        return self.text

    def wait_for_end(self) -> int:
        """The exit status of the program."""
        deadline = time.monotonic() + PATIENCE
        while self._process.poll() is None:
            assert time.monotonic() < deadline, f"it does not end:\n{self.text}"
            self._read(0.1)
        return self._process.returncode

    def resize(self, columns: int, rows: int) -> None:
        self._resize(columns, rows)
        self._screen.resize(rows, columns)
        self._process.send_signal(signal.SIGWINCH)

    def _resize(self, columns: int, rows: int) -> None:
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
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        os.close(self._fd)
