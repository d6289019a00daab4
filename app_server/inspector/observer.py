"""The other process of `inspect`: takes frames from a pipe, records them, and serves the page.

It ends when the pipe does and no page is open. It has a lower priority than the server and its client, and can wait.
"""

from __future__ import annotations

import contextlib
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
COMPLETE = b"."
"""Says that the recording has everything."""
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


async def observe(
    fd: int, store: EntryStore | None, recorder: Recorder | None, url_file: str, recorded: int | None
) -> None:
    """Take all frames, and serve the page until nobody looks at it any more. `recorded` is a pipe that is told when
    the recording is complete.
    """
    intake = Intake(store, recorder)

    async def take() -> None:
        await take_all(fd, intake)
        if recorder is not None and recorded is not None:
            recorder.close()
            with contextlib.suppress(BrokenPipeError):  # no server was started, so nobody waits
                os.write(recorded, COMPLETE)
            os.close(recorded)

    if store is None:
        await take()
        return
    # What serves the page is an extra.
    page_api = importlib.import_module("app_server.inspector.page_api")
    page_server = importlib.import_module("app_server.inspector.page_server")
    sessions = page_api.ShownSessions(store, store.head.server, None)

    async def until() -> None:
        await take()
        _let_go_of_stderr()
        store.end()
        await sessions.until_nobody_follows()

    await page_server.serve_page(sessions, url_file, until)


def _let_go_of_stderr() -> None:
    """Leave the client's pipe: it may wait for its end, and a page may stay open for long."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    os.close(null)


def main(argv: Sequence[str]) -> int:
    fd, recording, recorded, page, url_file = argv[:5]
    head = SessionHead(argv[6:], datetime.now().astimezone().isoformat(timespec="milliseconds"))
    store = EntryStore(head) if page else None
    try:
        recorder = Recorder(int(recording), head) if recording else None
        anyio.run(observe, int(fd), store, recorder, url_file, int(recorded) if recorded else None)
    except OSError as error:
        complain("app-server inspect", f"the recording failed: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
