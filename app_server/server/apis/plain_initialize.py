"""`initialize` of the conversation API and the thread API. It does not say which of them the client speaks, so its
usual form is answered here, before either is loaded. The conversation API answers all other forms, most of them with
an error.
"""

from __future__ import annotations

from msgspec import Struct

from app_server.engine.support.client_info import initialize_result
from app_server.server.apis.contexts import ConnectionContext
from app_server_protocol.encoding import Json


class PlainInitialize(Struct, frozen=True):
    """The parameters of an `initialize` that needs no further validation."""

    name: str
    version: str
    capabilities: dict[str, Json] | None
    """Capabilities as sent by the client; None if it has sent none."""


def plain_initialize(params: Json) -> PlainInitialize | None:
    """Return the parameters if the conversation API would accept them as well; else None."""
    match params:
        case {"clientInfo": {"name": str(name), "version": str(version)} as client} if params.keys() <= {
            "clientInfo",
            "capabilities",
        }:
            title, capabilities = client.get("title"), params.get("capabilities")
            if title is None or isinstance(title, str):
                return PlainInitialize(
                    name, version, capabilities if isinstance(capabilities, dict) else None
                )
    return None


def answer_initialize(context: ConnectionContext, params: Json) -> bytes | None:
    """Accept an `initialize` in its usual form, and return its result; None if it has another form. Raises RpcError if
    the client has initialized before.
    """
    plain = plain_initialize(params)
    if plain is None:
        return None
    context.handshake.accept(plain.name, plain.version, plain.capabilities)
    agent = context.handshake.user_agent.text()
    return initialize_result(agent, context.config.home, capabilities=plain.capabilities is not None)
