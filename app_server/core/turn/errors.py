"""Failures of a turn as errors with a class, which clients of the thread API distinguish. Pure."""

from __future__ import annotations

from app_server.core.errors import CoreError, ModelError
from protocol.engine.errors import ErrorClass, TurnError


def turn_error(error: BaseException) -> TurnError:
    """The error's text, which is fit for a user, and its class."""
    error_class = error.error_class if isinstance(error, CoreError) else ErrorClass.OTHER
    status = getattr(error, "status", None)
    details = error.details if isinstance(error, ModelError) else None
    return TurnError(str(error), error_class, status if isinstance(status, int) else None, details)
