"""System calls that a seccomp filter passes to a listener: receive them, inspect the caller, respond. Linux.

The calling thread waits until there is a response or its process is killed. Its pointers lead to memory that the
process can change at any time. So a listener must never check an argument and then let the kernel execute the call,
which would read the memory again. It performs the call itself, with the values that it has read.
"""

from __future__ import annotations

import fcntl
import os
import struct

from app_server.core.sandbox.confine.light_dataclasses import dataclass, field
from app_server.core.sandbox.confine.syscalls import call

RECEIVE, SEND, IS_VALID, ADD_DESCRIPTOR = 0xC0502100, 0xC0182101, 0x40082102, 0x40182103
"""SECCOMP_IOCTL_NOTIF_*"""

CALL = struct.Struct("=QIIiIQ6Q")
"""struct seccomp_notif: id, pid, flags, then seccomp_data: number, arch, instruction pointer, six arguments"""
RESPONSE = struct.Struct("=QqiI")
DESCRIPTOR = struct.Struct("=QIIII")
AND_RESPOND = 2
"""SECCOMP_ADDFD_FLAG_SEND"""
RESOLVE_IN_ROOT = 0x10
ATTEMPTS = 3
"""openat2(2) with RESOLVE_IN_ROOT fails with EAGAIN after a concurrent rename; it is repeated then."""


@dataclass(frozen=True, slots=True)
class Call:
    id: int
    thread: int
    number: int
    arguments: tuple[int, ...]


def receive_call(listener: int) -> Call:
    """Return the next call. Raises OSError if its process has ended."""
    buffer = bytearray(CALL.size)
    fcntl.ioctl(listener, RECEIVE, buffer, True)
    id, thread, _, number, _, _, *arguments = CALL.unpack(buffer)
    return Call(id, thread, number, tuple(arguments))


def is_waiting(listener: int, notified: Call) -> bool:
    """Tell whether the thread still waits. Check it after opening the caller: it proves that the pid was not reused."""
    try:
        fcntl.ioctl(listener, IS_VALID, notified.id.to_bytes(8, "little"))
    except OSError:
        return False
    return True


def respond(listener: int, notified: Call, *, errno: int = 0) -> None:
    """End the call with 0, or with an error."""
    fcntl.ioctl(listener, SEND, RESPONSE.pack(notified.id, 0, -errno, 0))


def respond_with_descriptor(listener: int, notified: Call, descriptor: int, *, close_on_exec: bool) -> None:
    """End the call with a new descriptor in the process, a duplicate of this one. One ioctl does both, so the process
    never has a descriptor that it did not get as a result.
    """
    flags = os.O_CLOEXEC if close_on_exec else 0
    fcntl.ioctl(listener, ADD_DESCRIPTOR, DESCRIPTOR.pack(notified.id, AND_RESPOND, descriptor, 0, flags))


@dataclass(slots=True)
class Caller:
    """The process that waits. A context manager; raises OSError if the process has ended or cannot be inspected."""

    thread: int
    folder: int = field(init=False, default=-1)
    """A descriptor of /proc/THREAD. It refers to the same process even if the pid is reused."""

    def __enter__(self) -> Caller:
        self.folder = os.open(f"/proc/{self.thread}", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        return self

    def __exit__(self, *exception: object) -> None:
        os.close(self.folder)

    def read(self, address: int, size: int) -> bytes:
        """Read its memory."""
        memory = os.open("mem", os.O_RDONLY | os.O_CLOEXEC, dir_fd=self.folder)
        try:
            return os.pread(memory, size, address)
        finally:
            os.close(memory)

    def descriptor(self, number: int) -> int:
        """Return a duplicate of one of its descriptors."""
        process = os.pidfd_open(self._process())
        try:
            return call("pidfd_getfd", process, number, 0)
        finally:
            os.close(process)

    def find(self, path: bytes) -> int:
        """Resolve `path` in the caller's root and working directory, following links. Returns an O_PATH descriptor."""
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
        """Return the device number of the mount that the descriptor is on, from the caller's mount table. None if it is
        not there.

        fstat(2) does not give it on all file systems: on btrfs and overlayfs st_dev differs from the mount's device.
        """
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
