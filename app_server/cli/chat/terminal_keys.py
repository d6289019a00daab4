"""Terminal features that prompt_toolkit lacks: keys that begin a new line, focus reports, and a bell.

The bell rings if the terminal is not in front. The module also lends the terminal to programs of the user: an editor, a
pager, a clipboard.
"""

from __future__ import annotations

import base64
import os
import select
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Final

import anyio
from prompt_toolkit.application import in_terminal
from prompt_toolkit.input.ansi_escape_sequences import ANSI_SEQUENCES
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.keys import Keys
from prompt_toolkit.output import Output

NEW_LINE: Final = Keys.ControlJ
"""Key to which the sequences below are mapped."""

FOCUS_IN, FOCUS_OUT = Keys.F23, Keys.F24
"""Keys that stand for focus reports, that the terminal has come to the front or left it. No keyboard has them any
more.
"""

ANSI_SEQUENCES.update(
    {
        **dict.fromkeys(("\x1b[13;2u", "\x1b[27;2;13~"), NEW_LINE),  # Shift-Enter, in both spellings
        **dict.fromkeys(("\x1b[13;3u", "\x1b[27;3;13~"), NEW_LINE),  # Alt-Enter
        "\x1b[I": FOCUS_IN,
        "\x1b[O": FOCUS_OUT,
    }
)

REPORTS_ON: Final = "\x1b[?1004h\x1b[>4;1m\x1b[m"
REPORTS_OFF: Final = "\x1b[?1004l\x1b[>4m\x1b[m"
"""Sequences that switch on and off focus reports, and keys with Shift as sequences of their own. A terminal that does
not know the second one may read it as a style, so the style is reset.
"""

MOST_AHEAD: Final = 50
"""Maximum number of lines that are read from before the prompt."""

LONG: Final = 10.0
"""Minimum duration of a turn whose end is reported, in seconds."""

MAKE_NOTICES: Final = {"iTerm.app", "WezTerm", "ghostty", "WarpTerminal"}
"""Values of TERM_PROGRAM of terminals that show OSC 9 as a desktop notification. kitty and ghostty are recognised by
TERM.
"""


class RawInput(Vt100Input):
    """Input that keeps the terminal in raw mode. prompt_toolkit switches to cooked mode whenever output is printed
    above the prompt. Then a Ctrl-C would be a signal instead of a key, and other keys would be echoed into the output.
    """

    lent = False
    """Whether another program has the terminal. Then the terminal is in the mode that the program expects."""

    def cooked_mode(self) -> AbstractContextManager[None]:
        return super().cooked_mode() if self.lent else nullcontext()

    @contextmanager
    def lend(self, output: Output) -> Iterator[None]:
        """Lend the terminal, without the reports that only the chat understands."""
        self.lent = True
        _write(output, REPORTS_OFF)
        try:
            yield
        finally:
            self.lent = False
            _write(output, REPORTS_ON)


def typed_ahead(terminal: int) -> list[str]:
    """Return the lines that were entered before the prompt took over the keys. At that time the terminal still edits
    lines and returns whole ones; later their ends would be keys that begin a new line. A line that is not entered yet
    stays to be read.
    """
    lines: list[str] = []
    while len(lines) < MOST_AHEAD and select.select([terminal], (), (), 0)[0]:
        line = os.read(terminal, 1 << 12)
        if not line:
            break
        lines += [each for each in line.decode("utf-8", "replace").splitlines() if each.strip()]
    return lines


@contextmanager
def reporting(output: Output) -> Iterator[None]:
    """Switch the reports on until the block ends."""
    _write(output, REPORTS_ON)
    try:
        yield
    finally:
        _write(output, REPORTS_OFF)


def _write(output: Output, sequence: str) -> None:
    output.write_raw(sequence)
    output.flush()


class DesktopNotices:
    """Desktop notifications. The terminal's focus reports tell whether it is in front. A terminal that sends none
    counts as in front.
    """

    def __init__(self, output: Output, environment: Mapping[str, str]) -> None:
        self.in_front = True
        self._output = output
        named = environment.get("TERM_PROGRAM") in MAKE_NOTICES
        self._shown_on_desktop = named or environment.get("TERM") in ("xterm-kitty", "xterm-ghostty")

    def asked(self) -> None:
        self._tell("a question waits for your answer")

    def ended(self, seconds: float) -> None:
        """Report the end of a turn that took this number of seconds, if it was long."""
        if seconds >= LONG:
            self._tell(f"the turn has ended after {seconds:.0f} s")

    def _tell(self, text: str) -> None:
        if self.in_front:
            return
        notice = f"\x1b]9;app-server chat: {text}\x1b\\" if self._shown_on_desktop else ""
        self._output.write_raw(f"\a{notice}")
        self._output.flush()


PAGER: Final = "less"
LESS: Final = "-R"
"""Options of `less` if the user has set none: colours are shown."""

CLIPBOARDS: Final = (("pbcopy",), ("wl-copy",), ("xclip", "-selection", "clipboard"), ("clip.exe",))
"""Programs that copy their input to the clipboard of the machine."""


class LentTerminal:
    """Programs of the user that show content of the chat: a pager, to which the terminal is lent, and a clipboard."""

    def __init__(self, keys: RawInput, output: Output, environment: Mapping[str, str]) -> None:
        self._keys, self._output, self._environment = keys, output, environment

    async def page(self, text: str) -> bool:
        """Show a text until the user leaves the pager. Return False if there is no pager."""
        name, *options = self._environment.get("PAGER", "").split() or [PAGER]
        program = self._found(name)
        if program is None:
            return False
        environment = {"LESS": LESS, **self._environment}
        try:
            with self._keys.lend(self._output):
                async with in_terminal():
                    await anyio.run_process(
                        [program, *options],
                        input=text.encode("utf-8", "replace"),
                        stdout=self._output.fileno(),
                        stderr=None,
                        check=False,
                        env=environment,
                    )
        except* (anyio.BrokenResourceError, OSError):
            pass  # the pager was left before it had read all, or is no program
        return True

    def _found(self, program: str) -> str | None:
        return shutil.which(program, path=self._environment.get("PATH"))

    async def copy(self, text: str) -> str:
        """Copy a text to the clipboard. Return the name of the program that took it.

        Over SSH the terminal is on another machine than the programs: then OSC 52 asks the terminal. OSC 52 is also
        used if there is no program.
        """
        here = "SSH_TTY" not in self._environment
        for name, *options in CLIPBOARDS if here else ():
            if (program := self._found(name)) is not None and await _taken([program, *options], text):
                return name
        encoded = base64.b64encode(text.encode("utf-8", "replace")).decode("ascii")
        self._output.write_raw(f"\x1b]52;c;{encoded}\x1b\\")
        self._output.flush()
        return "the terminal (OSC 52)"


async def _taken(command: Sequence[str], text: str) -> bool:
    """Run a program that takes a text. Return whether it succeeded. A program that stays running to provide the text
    later must not hold the chat's input.
    """
    taken, nowhere = False, subprocess.DEVNULL
    try:
        done = await anyio.run_process(
            command, input=text.encode("utf-8", "replace"), stdout=nowhere, stderr=nowhere, check=False
        )
        taken = done.returncode == 0
    except* (anyio.BrokenResourceError, OSError):
        pass  # the next program may succeed
    return taken
