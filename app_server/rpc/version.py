"""The member that names the version of JSON-RPC, which clients of some APIs require and others never get."""

from __future__ import annotations

from typing import Final

_BEGIN: Final = b'{"jsonrpc":"2.0",'


def with_version(message: bytes) -> bytes:
    """The message, which is no empty object, with the member in front of its others."""
    return _BEGIN + message[1:]
