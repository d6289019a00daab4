"""The output of the demo, its questions to the user, and the count of its checks.

The output consists of a few kinds of lines, in colour on a terminal, and is written only to the given stream. The
module does not know the protocol.
"""

from __future__ import annotations

import io
import shlex
import termios
from collections.abc import Mapping, Sequence
from typing import TextIO

import anyio
from msgspec import Struct

from app_server.client.command_line import printable

BOLD, DIM, RED, GREEN, YELLOW, CYAN = "1", "2", "31", "32", "33", "36"
LABEL = 9
"""Width of the label of a line, in columns."""


class Screen:
    """Lines with a label each: the speaker, or the kind of event."""

    def __init__(self, stream: TextIO, environment: Mapping[str, str]) -> None:
        """Use colour on a terminal that can show it, unless NO_COLOR is set."""
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without arrows still gets the text
        plain = bool(environment.get("NO_COLOR")) or environment.get("TERM") == "dumb"
        self._stream, self._colour = stream, stream.isatty() and not plain
        self._mid_line = False

    def title(self, text: str) -> None:
        self.line("")
        self.line(self._paint(f"── {text}", BOLD))

    def user(self, text: str) -> None:
        self._labelled("you", text, CYAN)

    def word(self, text: str) -> None:
        """Show a piece of the model's message as it arrives."""
        if not self._mid_line:
            self._write(self._paint("model".ljust(LABEL), BOLD))
            self._mid_line = True
        self._write(self._paint(text))

    def command(self, argv: Sequence[str]) -> None:
        self._labelled("command", shlex.join(argv), BOLD)

    def output(self, text: str, ending: str) -> None:
        for line in text.splitlines():
            self._labelled("", f"│ {line}")
        self._labelled("", f"└ {ending}", text_style=DIM)

    def diff(self, text: str) -> None:
        colours = {"+": GREEN, "-": RED, "@": CYAN}
        for line in text.splitlines():
            self._labelled("", f"│ {line}", text_style=colours.get(line[:1], ""))

    def note(self, label: str, text: str) -> None:
        self._labelled(label, text, DIM)

    def warning(self, text: str) -> None:
        self._labelled("warning", text, YELLOW)

    def question(self, text: str) -> None:
        """Print a question, and leave the cursor behind it."""
        self._end_line()
        self._write(self._paint("asked".ljust(LABEL), YELLOW) + text)
        self._mid_line = True

    def answered(self, text: str, *, typed: bool) -> None:
        """Show an answer. After a typed one the cursor is already on a new line."""
        self._mid_line = not typed
        if text:
            self._write(text if not typed else " " * LABEL + text)
            self._mid_line = True
        self._end_line()

    def check(self, what: str) -> None:
        self._labelled("", f"✓ {what}", text_style=GREEN)

    def failure(self, what: str) -> None:
        self._labelled("", f"✗ {what}", text_style=RED)

    def _labelled(self, label: str, text: str, style: str = "", text_style: str = "") -> None:
        self.line(self._paint(label.ljust(LABEL), style) + self._paint(text, text_style))

    def line(self, text: str = "") -> None:
        self._end_line()
        self._write(text + "\n")

    def _end_line(self) -> None:
        if self._mid_line:
            self._mid_line = False
            self._write("\n")

    def _paint(self, text: str, style: str = "") -> str:
        """Colour a text, with control characters replaced."""
        shown = printable(text)
        return f"\x1b[{style}m{shown}\x1b[0m" if self._colour and style else shown

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


class DemoStopped(Exception):
    """The demo cannot continue."""


class Checks(Struct):
    """Counts of the checks, from which the demo's exit status is computed."""

    screen: Screen
    passed: int = 0
    failed: int = 0
    denied: int = 0
    """Number of steps that were skipped because an approval was denied."""
    unasked: bool = False
    """Whether there was no user to ask."""

    def expect(self, what: str, happened: bool, instead: object = None) -> None:
        """Count a check. `what` describes the success, `instead` is the actual value."""
        if happened:
            self.passed += 1
            self.screen.check(what)
        else:
            self.failed += 1
            found = "" if instead is None else f"; found: {instead!r}"
            self.screen.failure(f"expected: {what}{found}")

    def stopped(self, why: str) -> None:
        """Count a failure after which nothing more can be checked."""
        self.failed += 1
        self.screen.failure(f"the demo cannot continue: {why}")

    @property
    def status(self) -> int:
        """The exit status: 0 if no check failed. A person who denied steps has seen the effect of a denial. If there
        was no user to ask, no step may have been denied.
        """
        unseen = self.denied > 0 and self.unasked
        return 0 if self.passed and not self.failed and not unseen else 1


class Person(Struct, frozen=True):
    """Decides about approvals: a person at the terminal, or `--yes`. Without either, everything is denied."""

    screen: Screen
    stdin: TextIO | None
    yes: bool = False

    @property
    def is_there(self) -> bool:
        """Whether there is a person, or `--yes`."""
        return self.yes or (self.stdin is not None and self.stdin.isatty())

    async def decide(self, question: str) -> bool:
        """Ask the person and return the answer; anything but y or yes is a denial."""
        if self.yes or self.stdin is None or not self.is_there:
            self.screen.question(f"{question} ")
            nobody = "denied: there is no terminal to ask at, and no --yes"
            self.screen.answered("yes (--yes)" if self.yes else nobody, typed=False)
            return self.yes
        termios.tcflush(self.stdin, termios.TCIFLUSH)  # discard input that was typed before the question
        self.screen.question(f"{question} [y/n] ")
        await anyio.wait_readable(self.stdin)  # no thread is used, so that the wait can be cancelled
        typed = self.stdin.readline()
        approved = typed.strip().lower() in ("y", "yes")
        self.screen.answered("approved" if approved else "denied", typed=typed.endswith("\n"))
        return approved
