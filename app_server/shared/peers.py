"""Who is at the other end of a connection, as the system says.

Who may write to the socket runs commands as the user. So other users are not served, root among them; nor is what this
server has started, because a command that a model runs is not to answer for the user.
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
"""Process, user and group, of SO_PEERCRED."""

SO_PEERPIDFD = 77
"""Of Linux 6.5; Python has no name for it."""

MAC_CREDENTIALS = struct.Struct("2I")
"""Version and user, which LOCAL_PEERCRED begins with."""
SOL_LOCAL, LOCAL_PEERCRED, LOCAL_PEERPID = 0, 1, 2

MAC_PROCESS = struct.Struct("2I56x")
"""Process and parent, which PROC_PIDT_SHORTBSDINFO begins with. It is told of processes of other users, too."""
PROC_PIDT_SHORTBSDINFO = 13
MAC_PROCESSES = "/usr/lib/libproc.dylib"

MOST_ANCESTORS = 10_000


class Peer(Struct, frozen=True):
    user: int
    pid: int
    """0: not to be seen from here, as in another container."""


def peer_of(connection: socket.socket) -> Peer:
    """Return who has connected. Raises OSError where the system does not say."""
    if sys.platform == "darwin":
        told = connection.getsockopt(SOL_LOCAL, LOCAL_PEERCRED, 128)
        return Peer(mac_user(told), connection.getsockopt(SOL_LOCAL, LOCAL_PEERPID))
    pid, user, _ = CREDENTIALS.unpack(
        connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    )
    return Peer(user, pid)


def mac_user(credentials: bytes) -> int:
    """Return the user of what LOCAL_PEERCRED says."""
    return int(MAC_CREDENTIALS.unpack_from(credentials)[1])


def is_own_work(connection: socket.socket, pid: int) -> bool:
    """Tell whether the peer descends from this process: a command, an MCP server, or what one of them has started. One
    that is not there any more does, for nobody can tell.
    """
    if sys.platform not in ("linux", "darwin") or pid in (0, os.getpid()):
        return False
    descends = descends_from(os.getpid(), pid, parent_of if sys.platform == "linux" else mac_parent_of)
    return True if descends is None else descends or _has_ended(connection)


def is_from_own_work(connection: socket.socket) -> bool:
    """Return whether the other end of a TCP connection of this machine is held by a process that this one has started.

    The system does not say who holds it, so the descriptors of these processes are looked at. Of one that lets nobody
    look, nobody can tell; so then the other end has to be found elsewhere. False where the system has no /proc.
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
    """Yield the inodes of sockets that have the ports of the other end."""
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
    """Return the sockets that a process holds, as the system names them; None if it lets nobody look, or has ended."""
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
    """Tell whether `ancestor` is among the ancestors of a process; None where they cannot be followed to the first."""
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
    """Return the parent of a process; None where it has ended."""
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
    """Return the parent of a process of macOS; None where it has ended."""
    told = ctypes.create_string_buffer(MAC_PROCESS.size)
    processes = ctypes.CDLL(MAC_PROCESSES)
    size = processes.proc_pidinfo(pid, PROC_PIDT_SHORTBSDINFO, ctypes.c_uint64(0), told, len(told))
    return mac_parent(told.raw[:size])


def mac_parent(told: bytes) -> int | None:
    """Return the parent in what is told of a process; None where nothing is."""
    return int(MAC_PROCESS.unpack(told)[1]) if len(told) == MAC_PROCESS.size else None


def _has_ended(connection: socket.socket) -> bool:
    """Tell whether the process that connected has ended, so that another may have its number; False where the system
    cannot tell.
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
