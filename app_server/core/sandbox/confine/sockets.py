"""What the socket broker does for a confined command: makes its unix sockets, connects them to one another. Linux.

The kernel finds a unix socket by its path, whatever network namespace it is in, and no mount or Landlock right that
this kernel has stands in the way. So commands do not connect themselves. The broker looks up the path as the command
sees it, holds what it found, and connects the command's own socket to that, if the command may write there, a confined
command of the same network namespace listens and nobody outside does. Sockets of other families are connected as they
are.
"""

from __future__ import annotations

import _thread
import contextlib
import errno
import os
import socket
import stat
import struct
from dataclasses import dataclass, field

from app_server.core.sandbox.confine import listening, notify, seccomp
from app_server.core.sandbox.confine.notify import Call, Caller
from app_server.core.sandbox.confine.syscalls import MACHINE, X86_64, call

SO_DOMAIN, SO_COOKIE = 39, 57
MAX_UNANSWERED = 1000
FAMILY = struct.Struct("=H")
ADDRESS_LIMIT, UNIX_ADDRESS_LIMIT = 128, 110

COLUMN = 0 if MACHINE == X86_64 else 1
CONNECT, SOCKET = seccomp.CONNECT[COLUMN], seccomp.SOCKET[COLUMN]


@dataclass(slots=True)
class World:
    """The network namespaces: the one of the sockets that the commands make, and the one that the server is in."""

    inside: socket.socket | None
    outside: socket.socket | None
    """None: the kernel does not tell which sockets listen there, and nothing can be connected."""
    unanswered: set[bytes] = field(default_factory=set)
    """Sockets that are being connected, and those whose process a signal took out of the call before it was answered:
    it makes the call again.
    """
    _lock: _thread.LockType = field(default_factory=_thread.allocate_lock)

    def leads_inside(self, caller: Caller, found: int) -> bool:
        """Whether a command listens at this file. PermissionError where somebody outside does."""
        if self.inside is None or self.outside is None:
            raise PermissionError(errno.EACCES, "the kernel does not tell where the socket leads")
        with self._lock:
            inside, outside = listening.listening(self.inside), listening.listening(self.outside)
        file = listening.file_of(os.fstat(found))
        names = {file}
        if file not in inside | outside:  # some file systems show another number than they have
            device = caller.filesystem_of(found)
            names |= {(file[0], device)} if device is not None else set()
        if names & outside:
            raise PermissionError(errno.EACCES, "the socket belongs to a process outside of the sandbox")
        return bool(names & inside)


def serve(listener: int, taken: Call, world: World) -> None:
    """Does what the call asks for, and answers it."""
    with contextlib.suppress(OSError):  # its process is gone
        try:
            if taken.number == SOCKET:
                _make(listener, taken, world)
            else:
                _connect(listener, taken, world)
        except OSError as error:
            notify.answer(listener, taken, errno=error.errno or errno.EACCES)


def _make(listener: int, taken: Call, world: World) -> None:
    """A socket of the broker's network namespace, if it has one of its own."""
    if world.inside is None:
        raise PermissionError(errno.EACCES, "unix sockets cannot be kept apart from those outside")
    kind, protocol = (value & 0xFFFFFFFF for value in taken.arguments[1:3])
    with socket.socket(socket.AF_UNIX, kind | socket.SOCK_CLOEXEC, protocol) as made:
        close_on_exec = bool(kind & socket.SOCK_CLOEXEC)
        notify.answer_with_descriptor(listener, taken, made.fileno(), close_on_exec=close_on_exec)


def _connect(listener: int, taken: Call, world: World) -> None:
    number, address, length = taken.arguments[:3]
    length &= 0xFFFFFFFF
    if length > ADDRESS_LIMIT:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    with Caller(taken.thread) as caller:
        if not notify.is_waiting(listener, taken):
            return
        with socket.socket(fileno=caller.descriptor(number & 0xFFFFFFFF)) as its:
            name = caller.read(address, length) if length else b""
            if len(name) < length:
                raise OSError(errno.EFAULT, os.strerror(errno.EFAULT))
            cookie = its.getsockopt(socket.SOL_SOCKET, SO_COOKIE, 8)
            # Noted before it is connected: the repeated call may come while this one is still being answered.
            repeated = cookie in world.unanswered
            if len(world.unanswered) < MAX_UNANSWERED:
                world.unanswered.add(cookie)
            try:
                _connect_to(its, name, caller, world)
            except OSError as error:
                if error.errno != errno.EISCONN or not repeated:
                    world.unanswered.discard(cookie)
                    raise
            with contextlib.suppress(OSError):  # a signal took the process out of the call: it stays noted
                notify.answer(listener, taken)
                world.unanswered.discard(cookie)


def _connect_to(its: socket.socket, name: bytes, caller: Caller, world: World) -> None:
    if its.getsockopt(socket.SOL_SOCKET, SO_DOMAIN) != socket.AF_UNIX:
        call("connect", its.fileno(), name, len(name))
        return
    found = caller.find(_path(name))
    try:
        _connect_inside(its, caller, found, world)
    finally:
        os.close(found)


def _path(name: bytes) -> bytes:
    """The path in an address. OSError where it is none: an abstract name, too, could be another command's."""
    if not FAMILY.size < len(name) <= UNIX_ADDRESS_LIMIT or FAMILY.unpack_from(name)[0] != socket.AF_UNIX:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    path = name[FAMILY.size :].partition(b"\0")[0]
    if not path:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))
    return path


def _connect_inside(its: socket.socket, caller: Caller, found: int, world: World) -> None:
    if not stat.S_ISSOCK(os.fstat(found).st_mode):
        raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
    if (
        os.fstatvfs(found).f_flag & os.ST_RDONLY
    ):  # for this command; another one, with other roots, may listen there
        raise PermissionError(errno.EACCES, "the socket lies outside of the writable roots")
    if not world.leads_inside(caller, found):
        raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
    held = FAMILY.pack(socket.AF_UNIX) + b"/proc/self/fd/%d\0" % found
    call("connect", its.fileno(), held, len(held))
