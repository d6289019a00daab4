"""Runs of hooks, as clients are shown them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from app_server_protocol.engine.hook_events import (
        HookEntryKind,
        HookEvent,
        HookHandlerType,
        HookRunStatus,
        HookSource,
    )


class HookRunEntry(Struct, frozen=True):
    """A text that a run has brought."""

    kind: HookEntryKind
    text: str


class HookRun(Struct, frozen=True, kw_only=True):
    """One run of one handler."""

    id: str
    event: HookEvent
    handler_type: HookHandlerType
    source: HookSource
    source_path: str
    display_order: int
    is_async: bool = False
    of_thread: bool = False
    """Whether the run concerns the thread as a whole, and not a turn of it."""
    status_message: str | None = None
    status: HookRunStatus
    entries: tuple[HookRunEntry, ...] = ()
    started_at: int
    """Time in seconds since 1970, as `completed_at`."""
    completed_at: int | None = None
    """None while it runs, as `duration_ms`."""
    duration_ms: int | None = None

    @property
    def problem(self) -> str | None:
        """Failure of the run, for clients that are not shown runs; None if there was none."""
        errors = [entry.text for entry in self.entries if entry.kind.value == "error"]
        return f"{self.event.value} hook of {self.source_path}: {'; '.join(errors)}" if errors else None


class HookStarted(Struct, frozen=True):
    """A hook has begun to run."""

    run: HookRun


class HookCompleted(Struct, frozen=True):
    """A hook has ended. Emitted once for each `HookStarted`."""

    run: HookRun
