"""The tap never waits for the observer: what it does not take is kept for a recording, and counted for a page."""

import json
import os
import threading
from collections.abc import Callable

import pytest

from app_server.inspector.frames import Frame, FrameDecoder, Source
from app_server.inspector.tap import Backlog, BoundedBacklog, FileBacklog, Tap

PIECE = b"x" * 10_000
PUT = 100
"""More than a pipe holds."""


def frames_after(backlog: Backlog, put: Callable[[Tap], None]) -> list[Frame]:
    """What comes out of the pipe when it is read only after all was put in."""
    reading, writing = os.pipe()
    tap = Tap(writing, backlog, lambda: 7)
    put(tap)
    decoder, found = FrameDecoder(), list[Frame]()
    os.set_blocking(reading, True)
    closing = False
    while data := os.read(reading, 1 << 16):
        found += decoder.feed(data)
        if not closing and found and found[-1].data == b"last":
            tap.close(None)
            closing = True
    os.close(reading)
    return found


def put_much(tap: Tap) -> None:
    for _ in range(PUT):
        tap.put(Source.SERVER, PIECE)


def test_a_recording_keeps_all_in_order() -> None:
    def put(tap: Tap) -> None:
        put_much(tap)
        tap.put(Source.CLIENT, b"last")

    found = frames_after(FileBacklog(), put)
    assert [frame.data for frame in found] == [*[PIECE] * PUT, b"last"]


def test_a_page_gets_a_counted_gap() -> None:
    reading, writing = os.pipe()
    tap = Tap(writing, BoundedBacklog(5 * len(PIECE)), lambda: 7)
    put_much(tap)
    closing = threading.Thread(target=tap.close, args=(None,))
    closing.start()  # it waits for what is kept to be taken
    decoder, found = FrameDecoder(), list[Frame]()
    while data := os.read(reading, 1 << 16):
        found += decoder.feed(data)
    closing.join()
    os.close(reading)
    kept = [frame for frame in found if frame.data == PIECE]
    gaps = [json.loads(frame.data) for frame in found if frame.source is Source.INSPECTOR]
    assert 5 <= len(kept) < PUT
    assert gaps == [{"event": "gap", "frames": PUT - len(kept), "bytes": (PUT - len(kept)) * len(PIECE)}]


def test_an_observer_that_left_is_no_obstacle() -> None:
    reading, writing = os.pipe()
    tap = Tap(writing, BoundedBacklog(1 << 20), lambda: 7)
    os.close(reading)
    put_much(tap)
    assert tap.gone
    tap.close(None)


@pytest.mark.parametrize("make", [FileBacklog, lambda: BoundedBacklog(1 << 20)])
def test_a_backlog_gives_its_bytes_in_order(make: Callable[[], Backlog]) -> None:
    backlog = make()
    taken = b""
    for number in range(20):
        assert backlog.add(b"%03d," % number, begun=False)
        if number % 3 == 0:
            taken += backlog.first()[:2]
            backlog.taken(2)
    while backlog:
        first = backlog.first()
        taken += first
        backlog.taken(len(first))
    assert taken == b"".join(b"%03d," % number for number in range(20))
