"""System calls that a filter hands to a listener: taking them, looking at who made them, answering them. Linux.

A call that was taken waits until it is answered or its process is killed. What it points to lies in memory that the
process may change at any time; so nothing is looked at and then left to the kernel to read again. The listener does
what was asked for itself, with what it has read.
"""

from __future__ import annotations

import fcntl
import os
import struct
from dataclasses import dataclass, field

from app_server.core.sandbox.confine.syscalls import call

RECEIVE, SEND, IS_VALID, ADD_DESCRIPTOR = 0xC0502100, 0xC0182101, 0x40082102, 0x40182103
"""SECCOMP_IOCTL_NOTIF_*"""

CALL = struct.Struct("=QIIiIQ6Q")
ANSWER = struct.Struct("=QqiI")
DESCRIPTOR = struct.Struct("=QIIII")
ANSWER_WITH_IT = 2
RESOLVE_IN_ROOT = 0x10
PATH_LIMIT = 4096
ATTEMPTS = 3
"""A rename elsewhere makes the kernel give up resolving a path; then it is asked again."""


@dataclass(frozen=True, slots=True)
class Call:
    id: int
    thread: int
    number: int
    arguments: tuple[int, ...]


def take(listener: int) -> Call:
    """The next call. OSError where its process is gone."""
    buffer = bytearray(CALL.size)
    fcntl.ioctl(listener, RECEIVE, buffer, True)
    id, thread, _, number, _, _, *arguments = CALL.unpack(buffer)
    return Call(id, thread, number, tuple(arguments))


def is_waiting(listener: int, taken: Call) -> bool:
    """Whether the process still waits; so its number has not become another's."""
    try:
        fcntl.ioctl(listener, IS_VALID, taken.id.to_bytes(8, "little"))
    except OSError:
        return False
    return True


def answer(listener: int, taken: Call, *, errno: int = 0) -> None:
    """0, or a failure."""
    fcntl.ioctl(listener, SEND, ANSWER.pack(taken.id, 0, -errno, 0))


def answer_with_descriptor(listener: int, taken: Call, descriptor: int, *, close_on_exec: bool) -> None:
    """The result is a new descriptor of the process, a duplicate of this one."""
    flags = os.O_CLOEXEC if close_on_exec else 0
    fcntl.ioctl(listener, ADD_DESCRIPTOR, DESCRIPTOR.pack(taken.id, ANSWER_WITH_IT, descriptor, 0, flags))


@dataclass(slots=True)
class Caller:
    """The process that waits. Use as a context manager; OSError where it is gone, or out of reach."""

    thread: int
    folder: int = field(init=False, default=-1)
    """/proc/THREAD, which stays the same process's."""

    def __enter__(self) -> Caller:
        self.folder = os.open(f"/proc/{self.thread}", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        return self

    def __exit__(self, *exception: object) -> None:
        os.close(self.folder)

    def read(self, address: int, size: int) -> bytes:
        """What its memory holds there."""
        memory = os.open("mem", os.O_RDONLY | os.O_CLOEXEC, dir_fd=self.folder)
        try:
            return os.pread(memory, size, address)
        finally:
            os.close(memory)

    def descriptor(self, number: int) -> int:
        """A duplicate of one of its descriptors."""
        process = os.pidfd_open(self._process())
        try:
            return call("pidfd_getfd", process, number, 0)
        finally:
            os.close(process)

    def find(self, path: bytes) -> int:
        """What lies at `path` as the process sees it, links followed; a descriptor that only stands for it."""
        if not path.startswith(b"/"):
            path = os.path.join(os.readlink(b"cwd", dir_fd=self.folder), path)
        root = os.open("root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self.folder)
        how = struct.pack("=QQQ", os.O_PATH | os.O_CLOEXEC, 0, RESOLVE_IN_ROOT)
        try:
            for _ in range(ATTEMPTS - 1):
                try:
                    return call("openat2", root, path, how, len(how))
                except BlockingIOError:
                    pass
            return call("openat2", root, path, how, len(how))
        finally:
            os.close(root)

    def filesystem_of(self, descriptor: int) -> int | None:
        """The number of the file system that what was found lies on, where the kernel tells it."""
        with open(f"/proc/self/fdinfo/{descriptor}", "rb") as file:
            fields = dict(line.split(b":", 1) for line in file if b":" in line)
        wanted = fields[b"mnt_id"].strip()
        mounts = os.open("mountinfo", os.O_RDONLY | os.O_CLOEXEC, dir_fd=self.folder)
        with open(mounts, "rb") as file:
            for line in file:
                mount, _, device, _ = line.split(b" ", 3)
                if mount == wanted:
                    major, minor = device.split(b":")
                    return int(major) << 20 | int(minor)
        return None

    def _process(self) -> int:
        status = os.open("status", os.O_RDONLY | os.O_CLOEXEC, dir_fd=self.folder)
        with open(status, "rb") as file:
            for line in file:
                if line.startswith(b"Tgid:"):
                    return int(line.split()[1])
        raise ProcessLookupError(3, os.strerror(3))
