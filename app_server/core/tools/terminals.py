"""The commands of a conversation that outlive the calls which opened them, by the number that the model knows.

They end with the conversation, and all of them when the user interrupts: what nobody watches must not go on. One that
was opened under a policy which gave more than the present one ends as soon as that is noticed.
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
"""Open at once; then the one that was used longest ago makes room, one that has ended before any other."""


@dataclass(slots=True)
class Terminal:
    """One open command."""

    number: int
    item: CommandExecution
    """As it started; the call that opened it gave it its id."""
    turn_id: str
    """The turn that opened it."""
    pty: PtySession
    began: float
    line: str
    """What runs in it, for questions about it."""
    cwd: str
    """The folder that it was opened in, as it was named."""
    rights: Rights
    """What it may do."""
    policy: Rights
    """What the policy gave when it was opened; where it may do more, the user said so."""
    begun: BegunItem | None = None
    """Set once the call that opened it has ended: the item goes on."""
    said: HeadTail = field(default_factory=lambda: HeadTail(SESSION_CAP))
    """All that was seen of it, for its end event."""

    def result(self, now: float) -> ExecResult:
        """How it ended, for its end event."""
        said, code = self.said.value(), self.pty.exit_code
        return ExecResult(
            exit_code=-1 if code is None else code,
            stdout=said,
            stderr=b"",
            aggregated=said,
            duration_s=now - self.began,
        )


@dataclass(slots=True)
class Terminals:
    """All of one conversation; the one used last stands at the end."""

    _open: dict[int, Terminal] = field(default_factory=dict)
    _next: int = 0
    _outdated: set[int] = field(default_factory=set)
    """Those that were ended because the policy became stricter."""

    def __len__(self) -> int:
        return len(self._open)

    def keep(
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
        """Takes it over: it is ended by `drop` or `close`."""
        numbered = replace(item, process_id=str(self._next))
        terminal = Terminal(self._next, numbered, turn_id, pty, began, line, cwd, rights, policy)
        self._next += 1
        self._open[terminal.number] = terminal
        return terminal

    async def make_room(self) -> Terminal | None:
        """Ends one where as many are open as may be, and gives it."""
        if len(self._open) < MOST:
            return None
        over = (number for number, other in self._open.items() if other.pty.exit_code is not None)
        terminal = self._open[next(over, next(iter(self._open)))]
        await self.drop(terminal.number)
        return terminal

    def detached(self) -> list[Terminal]:
        """Those that outlived the calls which opened them."""
        return [terminal for terminal in self._open.values() if terminal.begun is not None]

    def find(self, number: int) -> Terminal | None:
        """The terminal, which counts as used now."""
        terminal = self._open.pop(number, None)
        if terminal is not None:
            self._open[number] = terminal
        return terminal

    def why_missing(self, number: int) -> str:
        """Why `find` finds none under this number."""
        if number in self._outdated:
            return f"session {number} was ended: the policy that it was opened under gave more rights than this turn's"
        return f"there is no session {number}; it has ended or never was"

    async def end_outdated(self, policy: Rights) -> list[Terminal]:
        """Ends those that were opened under a policy which gave more than `policy` does, and gives them."""
        outdated = [terminal for terminal in self._open.values() if not terminal.policy.within(policy)]
        for terminal in outdated:
            self._outdated.add(terminal.number)
            await self.drop(terminal.number)
        return outdated

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
