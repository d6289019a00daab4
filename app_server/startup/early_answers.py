"""Answers to requests that do not wait for the server to be loaded. Fast to import."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

from app_server.conversations.begun import BegunRequest
from protocol.jsonrpc import Request, dump_response
from protocol.records import dataclass

if TYPE_CHECKING:
    from protocol.base import Json


@dataclass(frozen=True, slots=True)
class EarlyAnswer:
    response: bytes
    """One line without its end."""
    begun: BegunRequest | None = None
    """What the server has to go on with."""
    notifications: tuple[bytes, ...] = ()
    """Lines that follow it, without their ends."""
    before: tuple[bytes, ...] = ()
    """Lines that come before it."""


@dataclass(slots=True)
class SpokenApi:
    """What the first requests show about the client."""

    threads: bool = False
    """It speaks the thread API, which is then loaded with the server."""


def compact_json(value: Json) -> bytes:
    """As models are written. Raises UnicodeEncodeError for a lone surrogate, which only the full server can encode."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def early_result(request: Request, result: Json) -> EarlyAnswer | None:
    """The answer with this result; None leaves one that cannot be encoded here to the full server."""
    try:
        return EarlyAnswer(dump_response(request.id, compact_json(result)))
    except UnicodeEncodeError:
        return None


EarlyResponder = Callable[[Request], EarlyAnswer | None]
"""Answers a request that needs no engine; None leaves it to the full server."""
