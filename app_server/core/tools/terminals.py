"""The commands of a conversation that outlive the calls which opened them, by the number that the model knows.

They end with the conversation, and all of them when the user interrupts: what nobody watches must not go on.
"""

from __future__ import annotations

from dataclasses import field

import anyio

from app_server.core.exec.output import HeadTail
from app_server.core.exec.pty import SESSION_CAP, PtySession
from protocol.records import dataclass

MOST = 64
"""Open at once; then the one that was used longest ago makes room, one that has ended before any other."""


@dataclass(frozen=True, slots=True)
class Terminal:
    """One open command."""

    number: int
    call_id: str
    """The call that opened it; its events carry that id."""
    pty: PtySession
    began: float
    confined: bool
    said: HeadTail = field(default_factory=lambda: HeadTail(SESSION_CAP))
    """All that was seen of it, for its end event."""


@dataclass(slots=True)
class Terminals:
    """All of one conversation; the one used last stands at the end."""

    _open: dict[int, Terminal] = field(default_factory=dict)
    _next: int = 0

    def __len__(self) -> int:
        return len(self._open)

    async def keep(self, call_id: str, pty: PtySession, *, began: float, confined: bool) -> Terminal:
        """Takes it over: it is ended by `drop` or `close`."""
        terminal = Terminal(self._next, call_id, pty, began, confined)
        self._next += 1
        self._open[terminal.number] = terminal
        if len(self._open) > MOST:
            ended = (number for number, other in self._open.items() if other.pty.exit_code is not None)
            await self.drop(next(ended, next(iter(self._open))))
        return terminal

    def find(self, number: int) -> Terminal | None:
        """The terminal, which counts as used now."""
        terminal = self._open.pop(number, None)
        if terminal is not None:
            self._open[number] = terminal
        return terminal

    async def drop(self, number: int) -> None:
        """Ends it, if it is there and has not ended."""
        terminal = self._open.pop(number, None)
        if terminal is not None:
            await terminal.pty.close()

    async def forget(self, number: int) -> None:
        """Ends one that the model never heard of; the next one gets its number."""
        await self.drop(number)
        if number == self._next - 1:
            self._next = number

    async def close(self) -> None:
        """Ends all of them at once; also where the caller is cancelled."""
        terminals = list(self._open.values())
        self._open.clear()
        for terminal in terminals:
            terminal.pty.kill()
        with anyio.CancelScope(shield=True):  # each of these has a bound of its own
            async with anyio.create_task_group() as group:
                for terminal in terminals:
                    group.start_soon(terminal.pty.close, name="terminal close")
