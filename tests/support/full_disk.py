"""A disk that becomes full, for the files of conversations."""

import errno
import os

from app_server.engine.storage.disk import REAL_DISK, DiskCalls
from app_server_protocol.values import replace


class FullDisk:
    """Disk that accepts `room` more bytes, and then none until there is room again."""

    def __init__(self, room: float) -> None:
        self.room = room

    def write(self, fd: int, data: memoryview) -> int:
        if self.room <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = os.write(fd, data[: int(min(self.room, len(data)))])
        self.room -= written
        return written

    def disk(self) -> DiskCalls:
        return replace(REAL_DISK, write=self.write)
