"""The process at the other end of a connection, according to the operating system.

A process that may write to the socket can run commands as the user. So other users are not served, including root; nor
is any process that this server has started, because a model's command must not answer for the user.
"""

from __future__ import annotations

import ctypes
import os
import select
import socket
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice

from msgspec import Struct

CREDENTIALS = struct.Struct("3i")
"""Layout of SO_PEERCRED: process, user and group."""

SO_PEERPIDFD = 77
"""Socket option of Linux 6.5; Python has no name for it."""

MAC_CREDENTIALS = struct.Struct("2I")
"""Beginning of LOCAL_PEERCRED: version and user."""
SOL_LOCAL, LOCAL_PEERCRED, LOCAL_PEERPID = 0, 1, 2

MAC_PROCESS = struct.Struct("2I56x")
"""Beginning of PROC_PIDT_SHORTBSDINFO: process and parent. The system reports it of processes of other users, too."""
PROC_PIDT_SHORTBSDINFO = 13
MAC_PROCESSES = "/usr/lib/libproc.dylib"

MOST_ANCESTORS = 10_000


class Peer(Struct, frozen=True):
    user: int
    pid: int
    """Process id; 0 if it is not visible from here, as in another container."""


def peer_of(connection: socket.socket) -> Peer:
    """Return the peer of a connection. Raises OSError if the system does not report it."""
    if sys.platform == "darwin":
        told = connection.getsockopt(SOL_LOCAL, LOCAL_PEERCRED, 128)
        return Peer(mac_user(told), connection.getsockopt(SOL_LOCAL, LOCAL_PEERPID))
    pid, user, _ = CREDENTIALS.unpack(
        connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    )
    return Peer(user, pid)


def mac_user(credentials: bytes) -> int:
    """Return the user in the content of LOCAL_PEERCRED."""
    return int(MAC_CREDENTIALS.unpack_from(credentials)[1])


def is_own_work(connection: socket.socket, pid: int) -> bool:
    """Return whether the peer descends from this process: a command, an MCP server, or a process that one of them has
    started. A peer that has ended counts as one, because its parents are not known.
    """
    if sys.platform not in ("linux", "darwin") or pid in (0, os.getpid()):
        return False
    descends = descends_from(os.getpid(), pid, parent_of if sys.platform == "linux" else mac_parent_of)
    return True if descends is None else descends or _has_ended(connection)


def is_from_own_work(connection: socket.socket) -> bool:
    """Return whether the other end of a TCP connection of this machine is held by a process that this one has started.

    The system does not report its holder, so the descriptors of these processes are inspected. If one of them cannot be
    inspected, the other end has to be found in another process. False if the system has no /proc.
    """
    if sys.platform != "linux":
        return False
    ends = {f"socket:[{inode}]" for inode in _other_ends(connection)}
    parents = _parents()
    own = {pid for pid in parents if descends_from(os.getpid(), pid, parents.get)}
    is_hidden = False
    for pid in own:
        held = _sockets_of(pid)
        if held is None:
            is_hidden = is_hidden or parent_of(pid) is not None
        elif ends & held:
            return True
    if not is_hidden:
        return False
    return not any(ends & (_sockets_of(pid) or set()) for pid in parents.keys() - own)


def _other_ends(connection: socket.socket) -> Iterator[int]:
    """Yield the inodes of sockets with the ports of the other end."""
    own, other = connection.getsockname()[1], connection.getpeername()[1]
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with suppress(OSError), open(table, "rb") as file:
            for line in islice(file, 1, None):
                fields = line.split()
                if _port(fields[1]) == other and _port(fields[2]) == own:
                    yield int(fields[9])


def _port(address: bytes) -> int:
    return int(address.rpartition(b":")[2], 16)


def _parents() -> dict[int, int]:
    """Return the parent of each process."""
    pids = (int(name) for name in os.listdir("/proc") if name.isdigit())
    return {pid: parent for pid in pids if (parent := parent_of(pid)) is not None}


def _sockets_of(pid: int) -> set[str] | None:
    """Return the sockets that a process holds, by the system's names; None if it cannot be inspected, or has ended."""
    folder = f"/proc/{pid}/fd"
    try:
        names = os.listdir(folder)
    except OSError:
        return None
    found = set()
    for name in names:
        with suppress(OSError):
            found.add(os.readlink(f"{folder}/{name}"))
    return found


def descends_from(ancestor: int, pid: int, parent: Callable[[int], int | None]) -> bool | None:
    """Return whether `ancestor` is among the ancestors of a process; None if they cannot be followed to the first."""
    for _ in range(MOST_ANCESTORS):
        above = parent(pid)
        if above is None:
            return None
        if above == ancestor:
            return True
        if above <= 1:
            return False
        pid = above
    return None


def parent_of(pid: int) -> int | None:
    """Return the parent of a process; None if it has ended."""
    try:
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        _, _, rest = os.read(fd, 4096).rpartition(b")")
    except OSError:
        return None
    finally:
        os.close(fd)
    fields = rest.split()
    return int(fields[1]) if len(fields) > 1 else None


def mac_parent_of(pid: int) -> int | None:
    """Return the parent of a process of macOS; None if it has ended."""
    told = ctypes.create_string_buffer(MAC_PROCESS.size)
    processes = ctypes.CDLL(MAC_PROCESSES)
    size = processes.proc_pidinfo(pid, PROC_PIDT_SHORTBSDINFO, ctypes.c_uint64(0), told, len(told))
    return mac_parent(told.raw[:size])


def mac_parent(told: bytes) -> int | None:
    """Return the parent in the information about a process; None if there is none."""
    return int(MAC_PROCESS.unpack(told)[1]) if len(told) == MAC_PROCESS.size else None


def _has_ended(connection: socket.socket) -> bool:
    """Return whether the process that connected has ended, so that another process may have its number; False if the
    system cannot tell.
    """
    try:
        fd = connection.getsockopt(socket.SOL_SOCKET, SO_PEERPIDFD)
    except OSError:
        return False
    try:
        waiting = select.poll()
        waiting.register(fd, select.POLLIN)
        return bool(waiting.poll(0))
    finally:
        os.close(fd)
