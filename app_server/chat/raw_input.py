"""The keys of a terminal, which is never in cooked mode while the chat runs."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from prompt_toolkit.input.vt100 import Vt100Input


class RawInput(Vt100Input):
    """prompt_toolkit puts the terminal into cooked mode whenever something is printed above the prompt. A Ctrl-C that
    is pressed then would be a signal instead of a key, and other keys would be echoed into the output.
    """

    def cooked_mode(self) -> AbstractContextManager[None]:
        return nullcontext()
