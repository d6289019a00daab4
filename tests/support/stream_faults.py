"""Faults of a model's stream. Each can follow any events that came before it."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from app_server_protocol.encoding import Json
from tests.support.scripted_model import CREATED, Hold, Reply, done, reply, word

COMPLETED: Json = reply().events[-1]
CALL_WITHOUT_ANYTHING: Json = {"type": "function_call"}


def frame(event: Json) -> bytes:
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()


@dataclass(frozen=True, slots=True)
class Fault:
    name: str
    after: bytes
    """Bytes of the stream after the valid events."""
    cut: bool = False
    """Whether the connection breaks. Otherwise the stream ends normally."""
    hangs: bool = False
    """Whether the stream neither continues nor ends."""

    def behind(self, events: Sequence[Json]) -> Reply:
        body = b"".join(map(frame, events)) + self.after
        return Reply((Hold(),) if self.hangs else (), body=body, cut=self.cut)


def failed(error: Json) -> bytes:
    return frame({"type": "response.failed", "response": {"id": "resp-1", "error": error}})


def incomplete(details: Json) -> bytes:
    return frame({"type": "response.incomplete", "response": {"id": "resp-1", "incomplete_details": details}})


END = frame(COMPLETED)

TOO_LONG = "a context that is too long"

FAULTS = (
    Fault("the connection breaks", b"", cut=True),
    Fault("the stream ends too early", b""),
    Fault("the stream stops", b"", hangs=True),
    Fault("half a frame, then a break", frame(word("lost"))[:25], cut=True),
    Fault("half a frame, then the end", frame(word("lost"))[:25]),
    Fault(
        "half a character, then a break",
        'data: {"type":"response.output_text.delta","delta":"ä'.encode()[:-1],
        cut=True,
    ),
    Fault("a frame that is no JSON", b"data: {not json}\n\n" + END),
    Fault("a frame that is no JSON, then a break", b"data: {not json}\n\n", cut=True),
    Fault("a frame that is no object", b'data: [1, 2]\n\ndata: "text"\n\ndata: 7\n\n' + END),
    Fault("bytes that are no text", b"data: \xff\xfe\xfd\n\n" + END),
    Fault("NUL bytes", b"data: \0\0\0\n\n\0\0\n\n" + END),
    Fault("a comment and an empty frame", b": keep-alive\n\ndata:\n\n\n\n" + END),
    Fault("an unknown event", frame({"type": "response.dreamt_of", "value": [None]}) + END),
    Fault("an event without a type", b'data: {"delta": "x"}\n\n' + END),
    Fault("a delta that is no text", frame({"type": "response.output_text.delta", "delta": {"a": 1}}) + END),
    Fault("a megabyte without an end", b"data: " + b"x" * 1_000_000, cut=True),
    Fault("an item that is null", frame({"type": "response.output_item.done", "item": None}) + END),
    Fault("an item of no known kind", frame(done({"type": "telepathy", "id": "t-1"})) + END),
    Fault("a message without content", frame(done({"type": "message", "role": "assistant"})) + END),
    Fault("a call without anything", frame(done(CALL_WITHOUT_ANYTHING)) + END),
    Fault(
        "an output that nobody called for",
        frame(done({"type": "function_call_output", "call_id": "x", "output": "?"})) + END,
    ),
    Fault("the end twice", END + END),
    Fault("more after the end", END + frame(word("too late"))),
    Fault("a failure without a reason", failed(None)),
    Fault("a failure of the server", failed({"code": "server_error", "message": "it broke"})),
    Fault(
        "too many requests, for a moment",
        failed({"code": "rate_limit_exceeded", "message": "Please try again in 5ms."}),
    ),
    Fault("a quota that is used up", failed({"code": "insufficient_quota", "message": "pay"})),
    Fault(TOO_LONG, failed({"code": "context_length_exceeded", "message": "too long"})),
    Fault("an answer that is cut short", incomplete({"reason": "max_output_tokens"})),
    Fault("an answer that is cut short for no reason", incomplete(None)),
)
assert len(FAULTS) == 30
OPENING = (CREATED,)
