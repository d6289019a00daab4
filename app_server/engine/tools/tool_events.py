"""Events that tools emit.

This module has the part of the turn's emitter that tools use. It also has the output of a command, both as a limited
number of events while the command runs, and in the item at its end. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from app_server.engine.context.text_for_model import STANDARD_OUTPUT, OutputLimit, command_output
from app_server_protocol.engine.events import CommandOutput, EngineEvent
from app_server_protocol.engine.item_values import ExecOutputStream
from app_server_protocol.engine.items import CommandExecution, Item, ItemStatus
from app_server_protocol.values import replace

if TYPE_CHECKING:
    from app_server.engine.sandbox.exec.command import ExecResult


class BegunItem(Protocol):
    """An item that started in an earlier turn and is still running."""

    @property
    def started_ms(self) -> int: ...


class TurnEvents(Protocol):
    """The event emitter of a turn. Every item starts once and ends once: by `complete`, or when its turn is cut off."""

    @property
    def turn_id(self) -> str: ...

    def emit(self, event: EngineEvent, *, wake: bool = True) -> None: ...

    def emit_under(self, turn_id: str, event: EngineEvent) -> None:
        """Emit an event of an item that started in the turn `turn_id` and is still running."""
        ...

    def start(self, item: Item) -> None: ...

    def update(self, item: Item) -> None:
        """Replace an open item, so that an interrupted turn emits its latest state."""
        ...

    def complete(self, item: Item) -> None: ...

    def show(self, item: Item) -> None:
        """Emit an item that begins and ends at once."""
        ...

    def is_open(self, item_id: str) -> bool:
        """Return whether an item of this turn has begun and not ended."""
        ...

    def detach(self, item_id: str) -> BegunItem:
        """Let an item outlive the turn: `complete_detached` ends it, in whichever turn is running then."""
        ...

    def apart(self) -> TurnEvents:
        """Return an emitter outside of all operations, for items that continue after the turn."""
        ...

    def complete_detached(self, item: Item, begun: BegunItem, turn_id: str, *, cut: bool = False) -> None: ...


MAX_DELTAS = 10_000
"""Maximum number of output events of one command, the value of codex 0.58. The end event has head and tail of all
output.
"""
MAX_BYTES = 16 << 20
"""Maximum size of these events, in bytes: a fast command and a slow client must not exhaust the server's memory."""


class OutputDeltas:
    """Emits the output of one command as it arrives, within limits."""

    def __init__(self, item_id: str, emit: Callable[[CommandOutput], None]) -> None:
        self._item_id, self._emit = item_id, emit
        self.renew()

    def renew(self) -> None:
        """Reset the limits: the model has polled the command, which may run for long."""
        self._left, self._left_bytes = MAX_DELTAS, MAX_BYTES

    def emit_output(self, stream: ExecOutputStream, data: bytes) -> None:
        if self._left <= 0 or self._left_bytes <= 0:
            return
        data = data[: self._left_bytes]
        self._left -= 1
        self._left_bytes -= len(data)
        self._emit(CommandOutput(self._item_id, stream, data))


def decode(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def shown_output(result: ExecResult, output: str, limit: OutputLimit) -> str:
    """Return all output of a command that ran, as it is shown to the model."""
    return command_output(output, limit, timed_out=result.timed_out, seconds=result.duration_s)


def finished_command(
    item: CommandExecution, result: ExecResult, limit: OutputLimit = STANDARD_OUTPUT
) -> CommandExecution:
    """Return the item of a command that ran to its end."""
    output = decode(result.aggregated)
    return replace(
        item,
        status=ItemStatus.COMPLETED if result.exit_code == 0 else ItemStatus.FAILED,
        stdout=decode(result.stdout),
        stderr=decode(result.stderr),
        output=output,
        shown_output=shown_output(result, output, limit),
        exit_code=result.exit_code,
        seconds=result.duration_s,
    )


def unstarted_command(
    item: CommandExecution, text: str, seconds: float, *, declined: bool
) -> CommandExecution:
    """Return the item of a command that was rejected, did not start, or whose end is unknown."""
    return replace(
        item,
        status=ItemStatus.DECLINED if declined else ItemStatus.FAILED,
        stderr=text,
        output=text,
        shown_output=text,
        seconds=seconds,
    )
