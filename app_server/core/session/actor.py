"""What operations see of the session that carries them out."""

from __future__ import annotations

from msgspec import Struct

from app_server.core.session.operation_queue import OperationQueue
from app_server.core.session.services import Services
from app_server.core.session.state import SessionState
from app_server.core.session.task_runner import TaskRunner
from app_server.core.session.turn_control import TurnControl


class Actor(Struct, frozen=True):
    """The session, as far as operations need it."""

    services: Services
    state: SessionState
    queue: OperationQueue
    tasks: TaskRunner
    turns: TurnControl
