"""Converts every exception of a handler into a JSON-RPC error."""

from __future__ import annotations

import logging

from app_server.core.errors import (
    SHORTAGES,
    BeyondClientRights,
    ConfigError,
    ConversationError,
    CoreError,
    RolloutNotFound,
    retry_hint,
)
from app_server.rpc.errors import RpcError, internal_error, invalid_request

log = logging.getLogger(__name__)


def to_rpc_error(error: BaseException, method: str) -> RpcError:
    """The error response for an exception that was raised while serving `method`."""
    if isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        return to_rpc_error(error.exceptions[0], method)
    match error:
        case RpcError():
            return error
        case RolloutNotFound():
            return invalid_request(str(error), "rollout_not_found")
        case BeyondClientRights():
            return invalid_request(str(error), "client_rights")
        case ConfigError():
            return invalid_request(str(error), "config")
        case ConversationError():
            return invalid_request(str(error), "conversation")
        case CoreError():
            return internal_error(str(error), "engine")
        case OSError(errno=code, strerror=str(reason)) if code in SHORTAGES:
            log.warning("%s failed: %s", method, reason)
            return internal_error(f"{method}: {reason}{retry_hint(code)}", "engine")
        case _:
            log.error("%s failed", method, exc_info=error)
            return internal_error(
                f"{method}: internal error ({type(error).__name__}); the log has the details"
            )
