"""The terminals of a conversation: commands that outlive the call that opened them, by their session number.

All of them end with the conversation and when the user interrupts. A terminal that was opened under a policy with more
rights than the current one ends at the next call.
"""

from __future__ import annotations

from dataclasses import field, replace

import anyio

from app_server.core.approvals.consent import Rights
from app_server.core.exec.command import ExecResult
from app_server.core.exec.output import HeadTail
from app_server.core.exec.pty import SESSION_CAP, PtySession
from app_server.core.tools.events import BegunItem
from protocol.engine.items import CommandExecution
from protocol.records import dataclass

MOST = 64
"""Open at once. Beyond that, a terminal that has ended is closed, otherwise the least recently used one."""


@dataclass(slots=True)
class Terminal:
    """One open command."""

    number: int
    item: CommandExecution
    """The item as it started; its id is that of the call that opened it."""
    turn_id: str
    """The turn that opened it."""
    pty: PtySession
    began: float
    line: str
    """The command line, for approval requests."""
    cwd: str
    """The working directory, as the model named it."""
    rights: Rights
    """The rights of the command."""
    policy: Rights
    """The rights of the policy when it was opened; the command may have more if the user approved that."""
    begun: BegunItem | None = None
    """Set once the call that opened it has ended while the item continues."""
    output: HeadTail = field(default_factory=lambda: HeadTail(SESSION_CAP))
    """All output that was read from it, for its end event."""

    def result(self, now: float) -> ExecResult:
        """The result for its end event."""
        output, code = self.output.value(), self.pty.exit_code
        return ExecResult(
            exit_code=-1 if code is None else code,
            stdout=output,
            stderr=b"",
            aggregated=output,
            duration_s=now - self.began,
        )


@dataclass(slots=True)
class Terminals:
    """All of one conversation, the most recently used last."""

    _open: dict[int, Terminal] = field(default_factory=dict)
    _next: int = 0
    _outdated: set[int] = field(default_factory=set)
    """Numbers of those that were ended because the policy became stricter."""

    def __len__(self) -> int:
        return len(self._open)

    def add(
        self,
        item: CommandExecution,
        turn_id: str,
        pty: PtySession,
        *,
        began: float,
        line: str,
        cwd: str,
        rights: Rights,
        policy: Rights,
    ) -> Terminal:
        """Take ownership of the session; `drop` and `close` end it."""
        numbered = replace(item, process_id=str(self._next))
        terminal = Terminal(self._next, numbered, turn_id, pty, began, line, cwd, rights, policy)
        self._next += 1
        self._open[terminal.number] = terminal
        return terminal

    async def make_room(self) -> Terminal | None:
        """End one if the limit is reached, and return it."""
        if len(self._open) < MOST:
            return None
        over = (number for number, other in self._open.items() if other.pty.exit_code is not None)
        terminal = self._open[next(over, next(iter(self._open)))]
        await self.drop(terminal.number)
        return terminal

    def detached(self) -> list[Terminal]:
        """Those that outlived the call that opened them."""
        return [terminal for terminal in self._open.values() if terminal.begun is not None]

    def find(self, number: int) -> Terminal | None:
        """Look up a terminal and mark it as the most recently used."""
        terminal = self._open.pop(number, None)
        if terminal is not None:
            self._open[number] = terminal
        return terminal

    def why_missing(self, number: int) -> str:
        """The reason, for the model, why `find` returned None."""
        if number in self._outdated:
            return f"session {number} was ended: the policy that it was opened under gave more rights than this turn's"
        return f"there is no session {number}; it has ended or never was"

    async def end_outdated(self, policy: Rights) -> list[Terminal]:
        """End and return those that were opened under a policy with more rights than `policy`."""
        outdated = [terminal for terminal in self._open.values() if not terminal.policy.within(policy)]
        for terminal in outdated:
            self._outdated.add(terminal.number)
            await self.drop(terminal.number)
        return outdated

    async def drop(self, number: int) -> None:
        """End it if it is open."""
        terminal = self._open.pop(number, None)
        if terminal is not None:
            await terminal.pty.close()

    async def forget(self, number: int) -> None:
        """End one whose number the model never got; the next terminal reuses the number."""
        await self.drop(number)
        if number == self._next - 1:
            self._next = number

    async def close(self) -> None:
        """End all of them concurrently, even if the caller is cancelled."""
        terminals = list(self._open.values())
        self._open.clear()
        for terminal in terminals:
            terminal.pty.kill()
        with anyio.CancelScope(shield=True):  # each of these has a bound of its own
            async with anyio.create_task_group() as group:
                for terminal in terminals:
                    group.start_soon(terminal.pty.close, name="terminal close")
