"""What the model says, as finished bytes of HTTP: a head, then server-sent events in chunks.

Made once per measurement, so that while the clock runs the model only writes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from protocol.structs import Json

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
PIECE = 1 << 16

CREATED: Json = {"type": "response.created", "response": {"id": "resp-1"}}
COMPLETED: Json = {
    "type": "response.completed",
    "response": {"id": "resp-1", "usage": {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}},
}


@dataclass(frozen=True, slots=True)
class Paced:
    """A reply whose pieces come one by one, with so many seconds between them."""

    pieces: tuple[bytes, ...]
    gap: float


Reply = bytes | Paced


def reply(*events: Json) -> bytes:
    """A whole answer, for one write."""
    body = b"".join(map(_frame, (CREATED, *events, COMPLETED)))
    cuts = range(0, len(body), PIECE)
    return HEAD + b"".join(_chunk(body[at : at + PIECE]) for at in cuts) + _chunk(b"")


def paced(*events: Json, gap: float) -> Paced:
    """An answer with every event in a piece of its own, or a list of events."""
    groups = (each if isinstance(each, list) else [each] for each in (CREATED, *events, COMPLETED))
    first, *rest = [_chunk(b"".join(map(_frame, group))) for group in groups]
    return Paced((HEAD + first, *rest, _chunk(b"")), gap)


def begins() -> Json:
    return {"type": "response.output_item.added", "item": _message("")}


def delta(text: str) -> Json:
    return {"type": "response.output_text.delta", "delta": text}


def says(text: str) -> Json:
    return {"type": "response.output_item.done", "item": _message(text)}


def runs(command: Sequence[str], call_id: str) -> Json:
    """A call of the shell tool."""
    arguments = json.dumps({"command": list(command)})
    item = {"type": "function_call", "call_id": call_id, "name": "shell", "arguments": arguments}
    return {"type": "response.output_item.done", "item": item}


def stream(deltas: int) -> bytes:
    """One message in so many deltas."""
    words = [f"token{n} " for n in range(deltas)]
    return reply(begins(), *map(delta, words), says("".join(words)))


def _message(text: str) -> Json:
    content = [{"type": "output_text", "text": text}]
    return {"type": "message", "role": "assistant", "id": "msg-1", "content": content}


def _frame(event: Json) -> bytes:
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


HELLO = reply(begins(), delta("Hello"), says("Hello"))
