"""Conversion of every exception of a handler into a JSON-RPC error. Clients that speak another protocol are told how to
start the right server.
"""

from __future__ import annotations

import logging
from typing import Final

from app_server.engine.support import user_messages
from app_server.engine.support.engine_errors import (
    SHORTAGES,
    ConfigError,
    ConversationError,
    CoreError,
    retry_hint,
)
from app_server.engine.support.user_messages import Problem
from app_server_protocol.encoding import Json
from app_server_protocol.jsonrpc import shortened
from app_server_protocol.rpc_errors import RpcError, internal_error, invalid_request

log = logging.getLogger(__name__)


def to_rpc_error(error: BaseException, method: str) -> RpcError:
    """Return the error response for an exception that was raised while serving `method`."""
    if isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        return to_rpc_error(error.exceptions[0], method)
    match error:
        case RpcError():
            return error
        case ConfigError() | ConversationError():
            return invalid_request(str(error), error.kind, error.field)
        case CoreError():
            return internal_error(str(error), error.kind)
        case OSError(errno=code, strerror=str(reason)) if code in SHORTAGES:
            log.warning("%s failed: %s", method, reason)
            return internal_error(f"{method}: {reason}{retry_hint(code)}", "engine")
        case _:
            log.error("%s failed", method, exc_info=error)
            return internal_error(
                f"{method}: internal error ({type(error).__name__}); the log has the details"
            )


START_ACP = "start the server as `app-server acp`"
START_PLAIN = "start the server as `app-server`, without `acp`"

_PROTOCOLS: Final = (
    (("session/", "authenticate"), "the Agent Client Protocol", START_ACP),
    (
        (
            *("thread/", "turn/", "model/list", "account/", "config/"),
            *("newConversation", "sendUser", "addConversationListener", "listConversations"),
        ),
        "the app-server protocol",
        START_PLAIN,
    ),
    (
        ("tools/", "resources/", "prompts/", "completion/", "sampling/"),
        "the Model Context Protocol",
        "configure this server as an agent of the editor, not as an MCP server",
    ),
    (
        ("textDocument/", "workspace/", "$/"),
        "the Language Server Protocol",
        "configure this server as an agent of the editor, not as a language server",
    ),
)
"""Prefixes of the methods of each protocol, with its name and how the user gets a server that speaks it."""


def of_another_protocol(method: str, *, acp: bool) -> str:
    """Return the text to add to the error for an unknown method: a sentence, or "". `acp` says whether this server
    speaks the Agent Client Protocol.
    """
    spoken = START_ACP if acp else START_PLAIN
    for beginnings, protocol, advice in _PROTOCOLS:
        if method.startswith(beginnings) and advice != spoken:
            return f". {user_messages.other_protocol(shortened(method), protocol, advice)}"
    return ""


def initialize_of_another_protocol(params: Json, *, acp: bool) -> str:
    """Return the text to add to the error for an `initialize` that lacks what this server needs, as
    `of_another_protocol`.
    """
    if not isinstance(params, dict):
        return ""
    version, client = params.get("protocolVersion"), params.get("clientInfo")
    if not acp and type(version) is int:
        return f". {Problem('The client speaks the Agent Client Protocol', START_ACP)}"
    if acp and version is None and isinstance(client, dict):
        return f". {Problem('The client speaks the app-server protocol', START_PLAIN)}"
    return ""
