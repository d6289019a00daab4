"""The process environment of the engine: what it is given of the process that it runs in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from app_server.engine.storage.disk import DiskCalls
from app_server_protocol.ids import ConversationId
from app_server_protocol.values import Redacted

if TYPE_CHECKING:
    from app_server.engine.model.model_client import RequestGate


class ProcessEnvironment(Redacted, frozen=True, kw_only=True):
    """Facts and services of the process. The composition root passes them in; no other module reads them by itself."""

    HIDDEN = ("environment",)

    threads: Path
    """Home of new conversations: they are stored below it."""
    environment: Mapping[str, str]
    version: str
    shell_path: str
    now: Callable[[], datetime]
    """Returns the local time with a time zone."""
    clock: Callable[[], float]
    """Returns the monotonic time in seconds."""
    wall_clock: Callable[[], float]
    """Returns the time in seconds since 1970."""
    jitter: Callable[[], float]
    """Returns a random number from 0 up to 1, for the delays of retries."""
    disk: DiskCalls
    """System calls that write rollouts."""
    new_conversation_id: Callable[[], ConversationId]
    new_id: Callable[[], str]
    gate: RequestGate | None = None
    """Decides when requests to models are sent; None if they are sent at once."""
