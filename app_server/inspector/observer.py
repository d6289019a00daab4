"""The other process of `inspect`: takes frames from a pipe, records them, and serves the page.

It ends when the pipe does. It has a lower priority than the server and its client: what it does can wait.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from datetime import datetime

import anyio

from app_server.inspector.frames import FrameDecoder
from app_server.inspector.session_file import Recorder, SessionHead
from app_server.inspector.stream import StreamReader

NICE = 10
READ_SIZE = 1 << 18


async def observe(fd: int, recorder: Recorder | None) -> None:
    """Until the pipe ends. Raises OSError where the recording cannot be written."""
    decoder, reader = FrameDecoder(), StreamReader()
    os.set_blocking(fd, False)
    while True:
        await anyio.wait_readable(fd)
        data = os.read(fd, READ_SIZE)
        if not data:
            break
        records = [record for frame in decoder.feed(data) for record, _ in reader.feed(frame)]
        if recorder is not None:
            recorder.write(records)


def main(argv: Sequence[str]) -> int:
    fd, record = argv[:2]
    head = SessionHead(argv[5:], datetime.now().astimezone().isoformat(timespec="milliseconds"))
    os.nice(NICE)
    try:
        anyio.run(observe, int(fd), Recorder(record, head) if record else None)
    except OSError as error:
        print(f"app-server inspect: the recording failed: {error}", file=sys.stderr)  # noqa: T201
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
