"""Answers a request to resume a stored conversation before the server is loaded: for every API in the same way.

It needs the configuration and the file, and no event loop, routes or engine. The server serves the same request again
when it is loaded, without answering. What a request asks for and is answered is for each API to say:
`early_resumed_conversations`, `early_resumed_threads`. Fast to import.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

from app_server.conversations.begun import BegunRequest
from app_server.core.errors import ConfigError, ConversationError
from app_server.core.rollout.disk import open_for_reading
from app_server.core.rollout.locks import lock_rollout, unlock_rollout
from app_server.core.rollout.rollout_names import journal_path
from app_server.rpc.errors import RpcError
from app_server.startup.early_answers import EarlyAnswer
from protocol.jsonrpc import Request, dump_response
from protocol.records import dataclass

MOST_BYTES = 32 * 1024 * 1024
"""Nothing else is served while a file is read here: the full server, which reads in a thread, gets longer ones."""

LEFT_TO_THE_SERVER = (RpcError, ConfigError, ConversationError, OSError, UnicodeEncodeError)
"""It reports what is wrong, and can encode everything."""


@dataclass(frozen=True, slots=True)
class ShownConversation:
    """What the client is sent."""

    result: bytes
    notifications: tuple[bytes, ...]
    """Lines before the response, without their ends."""
    notified: frozenset[str]
    """Methods of notifications that the server does not send again."""


@dataclass(frozen=True, slots=True)
class PlannedResume:
    path: Path
    show: Callable[[], ShownConversation | None]
    """None where it needs the full server. Raises one of `LEFT_TO_THE_SERVER`."""
    again: Request
    """What the server serves: at least everything that later requests depend on."""


def early_resume(
    plan: Callable[[Request], PlannedResume | None],
) -> Callable[[Request], EarlyAnswer | None]:
    """The responder. It leaves requests to the full server that `plan` does not take, and whatever goes wrong."""

    def answer(request: Request) -> EarlyAnswer | None:
        try:
            planned = plan(request)
            if planned is None:
                return None
            release = _hold(planned.path)
        except LEFT_TO_THE_SERVER:
            return None
        shown = None
        try:
            shown = planned.show()
        except LEFT_TO_THE_SERVER:
            pass
        finally:
            if shown is None:
                release()
        if shown is None:
            return None
        begun = BegunRequest(planned.again, notified=shown.notified, release=release)
        return EarlyAnswer(dump_response(request.id, shown.result), begun, before=shown.notifications)

    return answer


def _hold(rollout: Path) -> Callable[[], None]:
    """Lock a stored conversation, until the server opens it and does so itself. Raises OSError where another server has
    it open, where a crash left something that has to be stored first, and for a long file.
    """
    if os.path.lexists(journal_path(rollout)):
        raise FileExistsError(journal_path(rollout))
    fd = open_for_reading(rollout)
    try:
        if os.fstat(fd).st_size > MOST_BYTES:
            raise OSError(errno.EFBIG, "too long to be read here")
        lock = lock_rollout(fd, rollout)
    except BaseException:
        os.close(fd)
        raise

    def release() -> None:
        unlock_rollout(fd, lock)
        os.close(fd)

    return release
