"""Model answers as they arrive on the wire: streams of events, compressed or not, damaged or not, cut into chunks."""

import gzip
import json
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

from app_server_protocol.encoding import Json
from tests.support.fuzz_mutation import NASTY

COMPLETED = {"type": "response.completed", "response": {"id": "r", "usage": None}}
TEXTS = st.text(st.sampled_from('ab \n\r\0:{}[],"\\é🙂\u2028\ud800'), max_size=12)


@dataclass(frozen=True)
class Encoding:
    """Value of the Content-Encoding header, and the function that encodes a body."""

    header: str
    encode: Callable[[bytes], bytes]


def _deflated(window: int, flush: int | None = None) -> Callable[[bytes], bytes]:
    def encode(body: bytes) -> bytes:
        packer = zlib.compressobj(wbits=window)
        if flush is None:
            return packer.compress(body) + packer.flush()
        events = body.split(b"\n\n")
        parts = [packer.compress(event + b"\n\n") + packer.flush(flush) for event in events[:-1]]
        return b"".join(parts) + packer.compress(events[-1]) + packer.flush()

    return encode


def _members(body: bytes) -> bytes:
    third = len(body) // 3 + 1
    return b"".join(gzip.compress(body[at : at + third]) for at in range(0, len(body), third))


GZIP, ZLIB, RAW = 16 + zlib.MAX_WBITS, zlib.MAX_WBITS, -zlib.MAX_WBITS
ENCODINGS = (
    Encoding("", bytes),
    Encoding("identity", bytes),
    Encoding("gzip", _deflated(GZIP)),
    Encoding("GZIP", _deflated(GZIP, zlib.Z_SYNC_FLUSH)),
    Encoding("x-gzip, identity", _deflated(GZIP, zlib.Z_FULL_FLUSH)),
    Encoding("gzip", _members),
    Encoding("gzip", lambda body: gzip.compress(body, 0) + bytes(9)),
    Encoding("deflate", _deflated(ZLIB)),
    Encoding("deflate", _deflated(ZLIB, zlib.Z_SYNC_FLUSH)),
    Encoding("deflate", _deflated(RAW)),
    Encoding("deflate", _deflated(RAW, zlib.Z_SYNC_FLUSH)),
)
COMPRESSED = tuple(encoding for encoding in ENCODINGS if encoding.header not in ("", "identity"))
REFUSED = (
    Encoding("gzip, gzip", lambda body: gzip.compress(gzip.compress(body))),
    Encoding("deflate, gzip", lambda body: gzip.compress(zlib.compress(body))),
    Encoding("br", bytes),
    Encoding("zstd, gzip", gzip.compress),
)


def responses_stream(texts: Sequence[str], end: str) -> bytes:
    """Return an answer of the Responses API with these deltas."""
    message = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "".join(texts)}],
    }
    events: list[Json] = [
        {"type": "response.created", "response": {"id": "r"}},
        *({"type": "response.output_text.delta", "delta": text} for text in texts),
        {"type": "response.output_item.done", "item": message},
        COMPLETED,
    ]
    frames = (f"event: {event['type']}{end}data: {json.dumps(event)}{end}{end}" for event in events)
    return f": hello{end}{end}".encode() + "".join(frames).encode()


def chat_stream(texts: Sequence[str], end: str) -> bytes:
    """Return an answer of Chat Completions with these deltas."""
    chunks: list[Json] = [
        *({"id": "c", "choices": [{"index": 0, "delta": {"content": text}}]} for text in texts),
        {"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
    ]
    frames = "".join(f"data: {json.dumps(chunk)}{end}{end}" for chunk in chunks)
    return (frames + f"data: [DONE]{end}{end}").encode()


@st.composite
def streams(draw: st.DrawFn) -> tuple[bool, list[str], bytes]:
    """Draw a stream: whether it is of Chat Completions, its texts, and its bytes."""
    texts, end = draw(st.lists(TEXTS, max_size=8)), draw(st.sampled_from(("\n", "\r\n", "\r")))
    chat = draw(st.booleans())
    return chat, texts, (chat_stream if chat else responses_stream)(texts, end)


@st.composite
def damaged(draw: st.DrawFn, body: bytes) -> bytes:
    """Draw the damaged body of an answer: cut off, with a part missing, or with strange bytes in it."""
    at = draw(st.integers(0, len(body)))
    match draw(st.sampled_from(("cut", "missing", "inserted", "changed", "doubled"))):
        case "cut":
            return body[:at]
        case "missing":
            return body[:at] + body[draw(st.integers(at, len(body))) :]
        case "inserted":
            return body[:at] + draw(st.sampled_from(NASTY) | st.binary(max_size=20)) + body[at:]
        case "changed":
            some = draw(st.binary(min_size=1, max_size=4))
            return body[:at] + some + body[at + len(some) :]
        case _:
            return body[:at] + body


UNITS = (
    *(
        b"\n",
        b"\r",
        b":\n",
        b": x\n\n",
        b"data:\n",
        b"data: x\n",
        b"data:1\n\n",
        b"event: x\n\n",
        b"\0",
        b"x",
    ),
    *(b"data: {}\n\n", b'data: {"type":"x"}\n\n', b"id: 1\n", b"\xef\xbb\xbf", b"data: [DONE]x\n\n"),
    *(b'data: {"type":"response.output_text.delta","delta":"x"}\n\n',),
    *(b'data: {"type":"response.created","response":{}}\n\n',),
    *(b'data: {"choices":[{"delta":{"content":"x"}}]}\n\n',),
    *(b'data: {"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"x"}}]}}]}\n\n',),
    *(
        b'data: {"type":"response.output_item.done","item":{"type":"message","role":"assistant","content":[]}}\n\n',
    ),
)
HEADS = (b"", b"data: ", b'data: {"a":"', b"data: {}\n\ndata: [", b"event: ", b"retry: 1\n")


BLOCK_BYTES = 256 * 1024


@dataclass(frozen=True)
class Bomb:
    """Decompression bomb: a head, and a unit that is repeated very often. Compressed, it has few bytes."""

    encoding: str
    head: bytes
    unit: bytes
    blocks: int

    def chunks(self) -> list[bytes]:
        """Return the compressed chunks. Blocks that end in a full flush can be repeated without compressing
        them again.
        """
        block = self.unit * (BLOCK_BYTES // len(self.unit))
        if not self.encoding:
            return [
                self.head,
                *[block[at : at + 65_536] for at in range(0, len(block), 65_536)] * self.blocks,
            ]
        packer = zlib.compressobj(9, wbits=RAW)
        head = packer.compress(self.head) + packer.flush(zlib.Z_FULL_FLUSH)
        packed = packer.compress(block) + packer.flush(zlib.Z_FULL_FLUSH)
        start = {"gzip": b"\x1f\x8b\x08\0\0\0\0\0\0\x03", "zlib": b"\x78\x9c", "raw": b""}[self.encoding]
        whole = start + head + packed * self.blocks
        return [whole[at : at + 65_536] for at in range(0, len(whole), 65_536)]

    @property
    def header(self) -> str:
        return {"": "", "gzip": "gzip", "zlib": "deflate", "raw": "deflate"}[self.encoding]


bombs = st.builds(
    Bomb,
    st.sampled_from(("", "gzip", "zlib", "raw")),
    st.sampled_from(HEADS),
    st.sampled_from(UNITS),
    st.integers(2, 6),
)
