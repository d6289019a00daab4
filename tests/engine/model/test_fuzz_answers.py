"""Answers of a model's server, compressed and cut in any way, give the same text as uncompressed ones, or one clear
error.

The cost is measured by counts: the allocated memory, and the calls between two rounds of the event loop.
"""

import sys
import tracemalloc
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from types import FrameType

import anyio
import anyio.lowlevel
import httpcore2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app_server.engine.http import content, sse
from app_server.engine.http.http_transport import HttpcoreResponse
from app_server.engine.model import event_json, stream
from app_server.engine.model.chat_reader import ChatDecoder
from app_server.engine.model.model_errors import ResponseTooLarge
from app_server.engine.model.prompt import Completed, OutputItemDone, OutputTextDelta
from app_server.engine.model.responses_reader import ResponsesDecoder
from app_server.engine.model.stream import EventStream
from app_server.engine.support.engine_errors import ModelError, StreamDisconnected
from app_server.engine.support.worker_threads import PIECE_BYTES
from app_server_protocol.responses import MessageItem, OutputText
from tests.support.fuzz_answers import (
    BLOCK_BYTES,
    COMPRESSED,
    ENCODINGS,
    REFUSED,
    Bomb,
    Encoding,
    bombs,
    damaged,
    streams,
)
from tests.support.fuzz_mutation import EXAMPLES, chunks, thorough

pytestmark = pytest.mark.fuzz

REFUSED_AFTER = BLOCK_BYTES // 2
"""Smallest size at which expanding input is refused, in bytes; that many pieces came before."""

CALLS_AT_ONCE = 5 * PIECE_BYTES
"""Maximum number of calls between two rounds of the loop: the shortest line is one byte and costs four calls."""


@dataclass
class Heard:
    """Result of an answer."""

    deltas: list[str] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)
    completed: bool = False
    error: ModelError | None = None


async def hear(header: str, body: Sequence[bytes], *, chat: bool) -> Heard:
    """Read an answer as a turn does."""

    async def wire() -> AsyncIterator[bytes]:
        for chunk in body:
            yield chunk

    heard = Heard()
    headers = [("content-encoding", header)] if header else []
    answer = HttpcoreResponse(httpcore2.Response(200, headers=headers, content=wire()))
    async with aclosing(answer.chunks()) as pieces:
        events = EventStream(_bounded(pieces), ChatDecoder(live=True) if chat else ResponsesDecoder(), [])
        try:
            async for batch in events:
                for event in batch:
                    match event:
                        case OutputTextDelta():
                            heard.deltas.append(event.text.pieces[event.end - 1])
                        case OutputItemDone(MessageItem() as item):
                            heard.messages += [
                                part.text for part in item.content if isinstance(part, OutputText)
                            ]
                        case Completed():
                            heard.completed = True
        except ModelError as error:
            heard.error = error
    assert heard.completed != (heard.error is not None)
    assert heard.error is None or len(str(heard.error)) > 20
    return heard


async def _bounded(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    async for piece in pieces:
        assert 0 < len(piece) <= PIECE_BYTES
        yield piece


def run(header: str, body: Sequence[bytes], *, chat: bool) -> Heard:
    async def alone() -> Heard:
        return await hear(header, body, chat=chat)

    return anyio.run(alone)


@thorough
@given(st.data(), streams(), st.sampled_from(ENCODINGS))
def test_an_answer_is_the_same_however_it_is_sent(
    data: st.DataObject, sent: tuple[bool, list[str], bytes], encoding: Encoding
) -> None:
    chat, texts, body = sent
    heard = run(encoding.header, data.draw(chunks(encoding.encode(body))), chat=chat)
    assert heard.error is None
    plain = [text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") for text in texts]
    said = [text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") for text in heard.deltas]
    assert "".join(said) == "".join(plain)
    assert heard == run("", [body], chat=chat)


@thorough
@given(st.data(), streams(), st.sampled_from(ENCODINGS))
def test_a_damaged_answer_is_an_answer_or_one_error(
    data: st.DataObject, sent: tuple[bool, list[str], bytes], encoding: Encoding
) -> None:
    chat, _, body = sent
    broken = data.draw(damaged(encoding.encode(body)))
    heard, at_once = (run(encoding.header, body, chat=chat) for body in (data.draw(chunks(broken)), [broken]))
    for one in (heard, at_once):
        assert one.error is None or isinstance(one.error, StreamDisconnected)
    # The text that was read before the damage was noticed depends on the cuts, and on nothing else.
    assert all(a == b for a, b in zip(heard.deltas, at_once.deltas, strict=False))


@thorough
@given(st.data(), streams(), st.sampled_from(COMPRESSED))
def test_an_answer_that_breaks_off_says_nothing_else(
    data: st.DataObject, sent: tuple[bool, list[str], bytes], encoding: Encoding
) -> None:
    chat, _, body = sent
    whole = encoding.encode(body)
    part = whole[: data.draw(st.integers(0, len(whole)))]
    heard, all_of_it = run(encoding.header, data.draw(chunks(part)), chat=chat), run("", [body], chat=chat)
    assert heard.deltas == all_of_it.deltas[: len(heard.deltas)]
    if heard.completed:
        assert heard == all_of_it
    else:
        assert heard.error is not None
        assert heard.error.retryable


@thorough
@given(st.data(), streams(), st.sampled_from(REFUSED))
def test_what_nobody_asked_for_is_refused_once(
    data: st.DataObject, sent: tuple[bool, list[str], bytes], encoding: Encoding
) -> None:
    chat, _, body = sent
    heard = run(encoding.header, data.draw(chunks(encoding.encode(body))), chat=chat)
    assert heard.error is not None
    assert "The model's provider sent" in str(heard.error)
    assert not heard.error.retryable
    assert heard.deltas == heard.messages == []


@dataclass
class Work:
    """Work that was done while an answer was read."""

    rounds: int = 0
    calls_at_once: int = 0
    peak: int = 0


@contextmanager
def counted_calls(count: list[int]) -> Iterator[None]:
    """Count every call of a function, Python's own included."""

    def called(frame: FrameType, event: str, argument: object) -> None:
        if event in ("call", "c_call"):
            count[0] += 1

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        yield
    finally:
        sys.setprofile(before)


def watched(bomb: Bomb, *, chat: bool, memory: bool) -> tuple[Heard, Work]:
    """Count calls or memory. Counting both at once would take too long."""
    body, work, count = bomb.chunks(), Work(), [0]

    async def reading() -> Heard:
        async with anyio.create_task_group() as group:
            group.start_soon(others)
            heard = await hear(bomb.header, body, chat=chat)
            group.cancel_scope.cancel()
        return heard

    async def others() -> None:
        while True:
            before = count[0]
            await anyio.lowlevel.checkpoint()
            work.rounds += 1
            work.calls_at_once = max(work.calls_at_once, count[0] - before)

    if not memory:
        with counted_calls(count):
            return anyio.run(reading), work
    run(bomb.header, [b"data: x\n\n"], chat=chat)  # a first answer loads modules, which must not count
    tracemalloc.start()
    try:
        heard = anyio.run(reading)
        work.peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    return heard, work


@pytest.fixture
def small_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the limits a small part of the real ones, so that many inputs can be tried."""
    monkeypatch.setattr(content, "UNQUESTIONED_BYTES", REFUSED_AFTER)
    monkeypatch.setattr(stream, "MAX_ANSWER_BYTES", 2 * BLOCK_BYTES)
    monkeypatch.setattr(event_json, "MAX_ITEM_BYTES", REFUSED_AFTER)
    monkeypatch.setattr(event_json, "MAX_ITEMS", 1000)
    limit = BLOCK_BYTES
    monkeypatch.setattr(stream, "MAX_EVENT_BYTES", limit)
    monkeypatch.setattr(stream, "SseDecoder", lambda: sse.SseDecoder(limit))


some = settings(thorough, max_examples=max(EXAMPLES // 40, 10))


@some
@given(bombs, st.booleans())
@pytest.mark.usefixtures("small_bounds")
def test_what_expands_lets_others_run(bomb: Bomb, chat: bool) -> None:
    heard, work = watched(bomb, chat=chat, memory=False)
    assert isinstance(heard.error, ResponseTooLarge | StreamDisconnected)
    assert isinstance(heard.error, ResponseTooLarge) or not bomb.encoding
    assert work.calls_at_once <= CALLS_AT_ONCE
    assert work.rounds >= REFUSED_AFTER // PIECE_BYTES


@some
@given(bombs, st.booleans())
@pytest.mark.usefixtures("small_bounds")
def test_expanding_input_takes_little_memory(bomb: Bomb, chat: bool) -> None:
    _, work = watched(bomb, chat=chat, memory=True)
    assert work.peak <= 8 * BLOCK_BYTES
