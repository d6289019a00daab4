"""Programs of the user that show what the chat has: a pager, which is lent the terminal, and a clipboard."""

from __future__ import annotations

import base64
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from typing import Final

import anyio
from prompt_toolkit.application import in_terminal
from prompt_toolkit.output import Output

from app_server.chat.terminal_keys import RawInput

PAGER: Final = "less"
LESS: Final = "-R"
"""Options of `less` where the user has none: colours are colours."""

CLIPBOARDS: Final = (("pbcopy",), ("wl-copy",), ("xclip", "-selection", "clipboard"), ("clip.exe",))
"""Programs that put what they read into the clipboard of the machine."""


class LentTerminal:
    def __init__(self, keys: RawInput, output: Output, environment: Mapping[str, str]) -> None:
        self._keys, self._output, self._environment = keys, output, environment

    async def page(self, text: str) -> bool:
        """Show a text until the pager is left; False where there is none."""
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
            pass  # it was left before it had read all, or is no program
        return True

    def _found(self, program: str) -> str | None:
        return shutil.which(program, path=self._environment.get("PATH"))

    async def copy(self, text: str) -> str:
        """Put a text into the clipboard; return who took it.

        Over SSH the terminal is on another machine than the programs: it is asked by OSC 52, as it is where there is
        no program.
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
    """Run a program that takes a text; one that stays, to give it away later, must not hold what the chat reads."""
    taken, nowhere = False, subprocess.DEVNULL
    try:
        done = await anyio.run_process(
            command, input=text.encode("utf-8", "replace"), stdout=nowhere, stderr=nowhere, check=False
        )
        taken = done.returncode == 0
    except* (anyio.BrokenResourceError, OSError):
        pass  # the next one may
    return taken
