"""What is needed of the wire before any table is loaded: names of methods, and the member that names the version of
JSON-RPC.
"""

from __future__ import annotations

from typing import Final

INITIALIZE: Final = "initialize"
"""The first request of every connection; answered before anything else is imported."""

INITIALIZED: Final = "initialized"
"""The client is ready; accepted, not required."""

SESSION_UPDATE: Final = "session/update"
"""The one notification of the Agent Client Protocol; its content is in its `updates` and `tool_calls`."""


_BEGIN: Final = b'{"jsonrpc":"2.0",'


def with_version(message: bytes) -> bytes:
    """Return the message, which is no empty object, with the member in front of its others."""
    return _BEGIN + message[1:]
