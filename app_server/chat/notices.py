"""Tells a user who looks elsewhere that the chat waits for an answer, or that a long turn has ended: by the bell of
the terminal, and by a notice on the desktop where the terminal is known to make one.

Nothing here says what a model or a command wrote.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from prompt_toolkit.output import Output

LONG: Final = 10.0
"""Seconds from which on the end of a turn is told."""

MAKE_NOTICES: Final = {"iTerm.app", "WezTerm", "ghostty", "WarpTerminal"}
"""Values of TERM_PROGRAM of terminals that show OSC 9 as a notice; kitty says who it is by TERM."""


class DesktopNotices:
    """Notices on the desktop. Whether the terminal is in front is known from its reports; one that sends none is taken
    to be.
    """

    def __init__(self, output: Output, environment: Mapping[str, str]) -> None:
        self.in_front = True
        self._output = output
        named = environment.get("TERM_PROGRAM") in MAKE_NOTICES
        self._shown_on_desktop = named or environment.get("TERM") in ("xterm-kitty", "xterm-ghostty")

    def asked(self) -> None:
        self._tell("a question waits for your answer")

    def ended(self, seconds: float) -> None:
        """Tell the end of a turn that took so long."""
        if seconds >= LONG:
            self._tell(f"the turn has ended after {seconds:.0f} s")

    def _tell(self, text: str) -> None:
        if self.in_front:
            return
        notice = f"\x1b]9;app-server chat: {text}\x1b\\" if self._shown_on_desktop else ""
        self._output.write_raw(f"\a{notice}")
        self._output.flush()
