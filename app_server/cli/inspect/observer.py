"""The other process of `inspect`: reads frames from a pipe, records them, and serves the page.

It ends when the pipe has ended and no page is open. It has a lower priority than the server and its client, because its
work can wait.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from datetime import datetime

import anyio

from app_server.engine.support import lazy_imports

lazy_imports.install()  # a program of its own, which needs an extra only where it serves a page

from app_server.cli.inspect import page_api, page_server
from app_server.cli.inspect.line_store import EntryStore, Intake
from app_server.cli.inspect.session_records import FrameDecoder, Recorder, SessionHead
from app_server.server.bootstrap.standard_streams import complain

NICE = 15
"""Niceness while it reads frames. The end of a recording is awaited, so the recording loses nothing by it."""
READ_SIZE = 1 << 16
"""Maximum size of data that is analysed before other tasks run, in bytes."""
COMPLETE = b"."
"""Message that the recording is complete."""
PAUSE_SECONDS = 0.02
"""Pause after the available frames have been read, in seconds: waking up for each message would take as long as the
message.
"""


async def take_all(fd: int, intake: Intake) -> None:
    """Read frames until the pipe ends, at the lower priority. Raises OSError if the recording cannot be written."""
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
    """Read all frames, and serve the page until no page is open. `recorded` is a pipe on which the completion of the
    recording is reported.
    """
    intake = Intake(store, recorder)

    async def take() -> None:
        await take_all(fd, intake)
        if recorder is not None and recorded is not None:
            recorder.close()
            with contextlib.suppress(BrokenPipeError):  # no server was started, so no process waits
                os.write(recorded, COMPLETE)
            os.close(recorded)

    if store is None:
        await take()
        return
    sessions = page_api.ShownSessions(store, store.head.server, None)

    async def until() -> None:
        await take()
        _let_go_of_stderr()
        store.end()
        await sessions.until_nobody_follows()

    await page_server.serve_page(sessions, url_file, until)


def _let_go_of_stderr() -> None:
    """Close the client's pipe: the client may wait for its end, and a page may stay open for long."""
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
