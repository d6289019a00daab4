"""Replies of the model as prepared bytes of HTTP: a head, then server-sent events in chunks.

They are made once per measurement, so that the model only writes while the clock runs.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from app_server.cli.demo import scripted_model
from app_server.cli.demo.scripted_model import (
    EVENT_STREAM,
    LAST_CHUNK,
    chunk,
    event_chunk,
    response_head,
    runs,
    says,
)
from app_server_protocol.encoding import Json

HEAD = response_head(200, EVENT_STREAM)
PIECE = 1 << 16


@dataclass(frozen=True, slots=True)
class Paced:
    """Reply whose pieces are sent one by one, with a pause between them in seconds."""

    pieces: tuple[bytes, ...]
    gap: float


Reply = bytes | Paced


def reply(*events: Json) -> bytes:
    """Return a whole answer as one write."""
    framed = scripted_model.reply(*events).events
    body = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in framed).encode()
    cuts = range(0, len(body), PIECE)
    return HEAD + b"".join(chunk(body[at : at + PIECE]) for at in cuts) + LAST_CHUNK


def paced(*events: Json, gap: float, together: int = 1) -> Paced:
    """Return a paced answer. `together` events form a piece; the first and the last event are pieces of their own."""
    created, *said, completed = map(event_chunk, scripted_model.reply(*events).events)
    pieces = (b"".join(said[at : at + together]) for at in range(0, len(said), together))
    return Paced((HEAD + created, *pieces, completed + LAST_CHUNK), gap)


def counted(deltas: int, word: str = "token") -> tuple[Json, ...]:
    """Return one message of `deltas` deltas: the word, each time with its number."""
    return says(" ".join(f"{word}{n}" for n in range(deltas)))


def command(*words: str, call_id: str = "call-1") -> bytes:
    """Return a reply that calls the shell tool."""
    return reply(runs(words, call_id))


HELLO = reply(*says("Hello"))
