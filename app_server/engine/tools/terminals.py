"""The terminals of a conversation, by session number: commands that outlive the call that opened them, and their
resource usage.

All terminals end with the conversation and when the user interrupts. A terminal that was opened under a policy with
more rights than the current one ends at the next call. Output and end of a terminal are emitted as they occur, under
the turn that opened it. For the model, the output is kept until its next poll.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

import anyio
import msgspec
from msgspec import Struct

from app_server.engine.approvals.consent import Rights
from app_server.engine.sandbox.exec import command, streams
from app_server.engine.sandbox.exec import pty as terminal_session
from app_server.engine.sandbox.launcher import descendants
from app_server.engine.tools.tool_events import BegunItem, OutputDeltas, TurnEvents, decode, finished_command
from app_server_protocol.engine.item_values import ExecOutputStream
from app_server_protocol.engine.items import CommandExecution, ItemStatus
from app_server_protocol.values import replace

if TYPE_CHECKING:
    from app_server.engine.sandbox.exec.command import ExecResult
    from app_server.engine.sandbox.exec.pty import PtySession
    from app_server.engine.sandbox.exec.streams import ProcessUsage

MOST = 64
"""Maximum number of open terminals. Beyond it, a terminal that has ended is closed, otherwise the least recently
used.
"""


class Terminal:
    """One open terminal with its command.

    `item` is its item as it started, with the id of the call that opened it; `turn` opened it and may have ended;
    `teller` returns the emitter of the events about it now; `seconds` returns how long it has run. `rights` are those
    of the command, `policy` those of the policy when it was opened: the command may have more if the user approved
    that.
    """

    def __init__(
        self,
        *,
        number: int,
        item: CommandExecution,
        turn: TurnEvents,
        pty: PtySession,
        teller: Callable[[], TurnEvents],
        seconds: Callable[[], float],
        rights: Rights,
        policy: Rights,
    ) -> None:
        self.number, self.item, self.turn, self.pty = number, item, turn, pty
        self.teller, self.seconds, self.rights, self.policy = teller, seconds, rights, policy
        self.begun: BegunItem | None = None
        """The open item, if it continues after the call that opened it has ended. Otherwise None."""
        self.end_emitted = False
        self.last_usage: ProcessUsage | None = None
        """Resource usage at the last measurement."""
        self.output = streams.HeadTail(terminal_session.SESSION_CAP)
        """All output of the command, for its end event."""
        self.deltas = OutputDeltas(item.id, lambda output: self.teller().emit_under(self.turn_id, output))
        pty.on_output = self._take
        pty.on_end = self._ended

    @property
    def turn_id(self) -> str:
        return self.turn.turn_id

    @property
    def line(self) -> str:
        """The command line, for approval requests."""
        return self.item.line or ""

    @property
    def runs_on(self) -> bool:
        """Whether it outlived the call that opened it, and still runs."""
        return self.begun is not None and self.pty.exit_code is None

    def detach(self) -> None:
        """Let it outlive the call that opened it. From now on its end event is emitted when the command ends."""
        self.begun = self.turn.detach(self.item.id)
        if self.pty.exit_code is not None:
            self.tell_end()

    def tell_end(self) -> None:
        """Emit the end of the item, once."""
        if self.end_emitted:
            return
        item, begun = finished_command(self.item, self._result()), self.begun
        self.end_emitted, self.begun = True, None
        if begun is None:
            self.turn.complete(item)
        else:
            self.teller().complete_detached(item, begun, self.turn_id)

    def cut(self, turn: TurnEvents) -> None:
        """End the item, which has continued since an earlier turn, within this turn: the command is being killed."""
        assert self.begun is not None
        item = replace(self.item, status=ItemStatus.FAILED, output=decode(self.output.value()))
        turn.complete_detached(item, self.begun, self.turn_id, cut=True)
        self.begun, self.end_emitted = None, True

    def _take(self, chunk: bytes) -> None:
        self.output.add(chunk)
        if self.begun is not None or self.turn.is_open(self.item.id):
            self.deltas.emit_output(ExecOutputStream.STDOUT, chunk)

    def _ended(self) -> None:
        if self.begun is not None:
            self.tell_end()

    def _result(self) -> ExecResult:
        output, code = self.output.value(), self.pty.exit_code
        return command.ExecResult(
            exit_code=-1 if code is None else code,
            stdout=output,
            stderr=b"",
            aggregated=output,
            duration_s=self.seconds(),
        )


class Terminals(Struct):
    """All terminals of one conversation. The last is the most recently used one."""

    running_turn: Callable[[], TurnEvents | None] = lambda: None
    """Function that returns the emitter of the running turn. None if no turn runs."""
    _open: dict[int, Terminal] = msgspec.field(default_factory=dict)
    _next: int = 0
    _outdated: set[int] = msgspec.field(default_factory=set)
    """Numbers of the terminals that were ended because the policy became stricter."""

    def __len__(self) -> int:
        return len(self._open)

    @property
    def next_id(self) -> str:
        """The number of the terminal that is opened next, as text."""
        return str(self._next)

    def add(
        self,
        item: CommandExecution,
        turn: TurnEvents,
        pty: PtySession,
        *,
        seconds: Callable[[], float],
        rights: Rights,
        policy: Rights,
    ) -> Terminal:
        """Add a terminal and take ownership of the session; `drop` and `close` end it."""
        numbered, apart = replace(item, process_id=self.next_id), turn.apart()
        terminal = Terminal(
            number=self._next,
            item=numbered,
            turn=turn,
            pty=pty,
            teller=lambda: self.running_turn() or apart,
            seconds=seconds,
            rights=rights,
            policy=policy,
        )
        self._next += 1
        self._open[terminal.number] = terminal
        return terminal

    async def make_room(self) -> Terminal | None:
        """If the limit is reached, end one terminal and return it."""
        if len(self._open) < MOST:
            return None
        over = (number for number, other in self._open.items() if other.pty.exit_code is not None)
        terminal = self._open[next(over, next(iter(self._open)))]
        await self.drop(terminal.number)
        return terminal

    def names(self, item_id: str) -> bool:
        """Return whether a terminal has an item with this id."""
        return any(terminal.item.id == item_id for terminal in self._open.values())

    def detached(self) -> list[Terminal]:
        """Return the terminals that outlived the call that opened them and whose end was not emitted."""
        return [terminal for terminal in self._open.values() if terminal.begun is not None]

    def running_on(self) -> list[Terminal]:
        """Return the terminals that run between the model's calls, ordered by number."""
        found = [terminal for terminal in self._open.values() if terminal.runs_on]
        return sorted(found, key=lambda terminal: terminal.number)

    def kill(self, numbers: Collection[int] | None = None) -> bool:
        """Kill the terminals with these numbers that run between the model's calls, or all such terminals if None.
        Return whether there were any. The end event of each is emitted when it ends.
        """
        killed = [terminal for terminal in self.running_on() if numbers is None or terminal.number in numbers]
        for terminal in killed:
            terminal.pty.kill()
        return bool(killed)

    def cut_detached(self, turn: TurnEvents) -> None:
        """End the items of the commands that are killed with an interrupted turn."""
        for terminal in self.detached():
            terminal.cut(turn)

    def find(self, number: int) -> Terminal | None:
        """Look up a terminal and mark it as the most recently used."""
        terminal = self._open.pop(number, None)
        if terminal is not None:
            self._open[number] = terminal
        return terminal

    def why_missing(self, number: int) -> str:
        """Return the reason why `find` returned None, as text for the model."""
        if number in self._outdated:
            return f"session {number} was ended: the policy that it was opened under gave more rights than this turn's"
        return f"there is no session {number}; it has ended or never was"

    async def end_outdated(self, policy: Rights) -> list[Terminal]:
        """End and return the terminals that were opened under a policy with more rights than `policy`."""
        outdated = [terminal for terminal in self._open.values() if not terminal.policy.within(policy)]
        for terminal in outdated:
            self._outdated.add(terminal.number)
            await self.drop(terminal.number)
        return outdated

    async def drop(self, number: int) -> None:
        """End the terminal if it is open."""
        terminal = self._open.pop(number, None)
        if terminal is not None:
            await terminal.pty.close()

    async def forget(self, number: int) -> None:
        """End a terminal whose number the model never got; the next terminal reuses the number."""
        await self.drop(number)
        if number == self._next - 1:
            self._next = number

    async def close(self) -> None:
        """End all terminals concurrently, even if the caller is cancelled."""
        terminals = list(self._open.values())
        self._open.clear()
        for terminal in terminals:
            terminal.pty.kill()
        with anyio.CancelScope(shield=True):  # each close has a timeout of its own
            async with anyio.create_task_group() as group:
                for terminal in terminals:
                    group.start_soon(terminal.pty.close, name="terminal close")


SHORTEST_SECONDS = 0.5
"""Shortest measuring interval of CPU usage, in seconds. The usage within a shorter one says nothing, so the time before
it is included.
"""


class TerminalUsage(Struct, frozen=True):
    pid: int
    cpu_percent: float
    """CPU usage of all its processes in percent of one processor, since the previous measurement, or since it began."""
    rss_kb: int


def look_at_terminals(terminals: Sequence[Terminal]) -> list[TerminalUsage | None]:
    """Return the resource usage of each terminal; None if it is not known. Blocks."""
    if not terminals:
        return []
    table = descendants.listed()
    found: list[TerminalUsage | None] = []
    for terminal in terminals:
        root = terminal.pty.process.root
        usage = None if root is None else streams.usage_of(root, table)
        found.append(None if usage is None else _shown(terminal, usage))
    return found


def _shown(terminal: Terminal, now: ProcessUsage) -> TerminalUsage:
    before = terminal.last_usage
    seconds, used = now.age_seconds, now.cpu_seconds
    if (
        before is not None
        and before.pid == now.pid
        and now.age_seconds - before.age_seconds >= SHORTEST_SECONDS
    ):
        seconds, used = seconds - before.age_seconds, max(used - before.cpu_seconds, 0.0)
    if before is None or seconds != now.age_seconds:
        terminal.last_usage = now
    share = 100.0 * used / seconds if seconds > 0 else 0.0
    return TerminalUsage(now.pid, round(share, 1), now.rss_kb)
