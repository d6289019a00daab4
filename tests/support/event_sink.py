"""Event sink that forwards the events of a turn without an outbox."""

from collections.abc import Callable
from dataclasses import dataclass

from app_server_protocol.engine.events import EngineEvent, SessionEvent


@dataclass(frozen=True)
class EventSink:
    """Sink that forwards events and stores nothing."""

    take: Callable[[SessionEvent], object]

    def emit(
        self, operation_id: str, event: EngineEvent, *, turn_id: str | None = None, wake: bool = True
    ) -> None:
        self.take(SessionEvent(operation_id, turn_id, event))
