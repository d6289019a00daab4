"""The other process of `inspect`: takes frames from a pipe, records them, and serves the page.

It ends when the pipe does. It has a lower priority than the server and its client, and can wait.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from datetime import datetime

import anyio

from app_server.inspector.session_records import FrameDecoder, Recorder, SessionHead
from app_server.inspector.store import EntryStore, Intake
from app_server.standard_streams import complain

NICE = 15
"""Once it takes frames. A recording is awaited at the end, so that it loses nothing by it."""
READ_SIZE = 1 << 16
"""Bytes that are analysed before others get a turn."""
PAUSE_SECONDS = 0.02
"""After what came has been read: being woken for each message would take as long as the message."""


async def take_all(fd: int, intake: Intake) -> None:
    """Take frames until the pipe ends, at the lower priority. Raises OSError where the recording cannot be written."""
    os.nice(NICE)
    decoder = FrameDecoder()
    os.set_blocking(fd, False)
    while True:
        await anyio.wait_readable(fd)
        data = os.read(fd, READ_SIZE)
        if not data:
            return
        intake.take(decoder.feed(data))
        if len(data) < READ_SIZE:
            await anyio.sleep(PAUSE_SECONDS)


async def observe(fd: int, store: EntryStore | None, recorder: Recorder | None, url_file: str) -> None:
    intake = Intake(store, recorder)
    if store is None:
        await take_all(fd, intake)
        return

    async def until() -> None:
        await take_all(fd, intake)
        store.end()

    # What serves the page is an extra.
    page = importlib.import_module("app_server.inspector.page_server")
    serving = importlib.import_module("app_server.inspector.serving")
    await serving.serve_page(page.ShownSessions(store, store.head.server, None), url_file, until)


def main(argv: Sequence[str]) -> int:
    fd, recording, page, url_file = argv[:4]
    head = SessionHead(argv[5:], datetime.now().astimezone().isoformat(timespec="milliseconds"))
    try:
        recorder = Recorder(int(recording), head) if recording else None
        anyio.run(observe, int(fd), EntryStore(head) if page else None, recorder, url_file)
    except OSError as error:
        complain("app-server inspect", f"the recording failed: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
