"""Which unix sockets of a network namespace listen, by the file that each is bound to. Linux, sock_diag(7).

A file of the kind socket belongs to the one socket that made it, and to no other ever after. So whoever holds the
file and finds it in the list of a network namespace knows where a connection to it leads.
"""

from __future__ import annotations

import os
import socket
import struct

AF_NETLINK, NETLINK_SOCK_DIAG = 16, 4
SOCK_DIAG_BY_FAMILY, DONE, ERROR = 20, 3, 2
REQUEST_ALL = 0x301
LISTENING = 1 << 10
SHOW_FILE = 2
FILE_ATTRIBUTE = 1

HEADER = struct.Struct("=IHHII")
WANTED = struct.Struct("=BBHIIIII")
SOCKET_SIZE = 16
PAIR = struct.Struct("=II")
SHORT = struct.Struct("=HH")
READ_SIZE = 1 << 16
INODE_BITS = 0xFFFFFFFF
"""So much of an inode number is reported."""

File = tuple[int, int]
"""An inode number as far as it is reported, and a file system's number as the kernel writes it."""


def open_list() -> socket.socket:
    """A way to ask about the network namespace that this process is in, now and for ever. OSError where the kernel does
    not report.
    """
    return socket.socket(AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, NETLINK_SOCK_DIAG)


def listening(asked: socket.socket) -> set[File]:
    """The files of all sockets that listen. OSError where the kernel does not report them."""
    wanted = WANTED.pack(socket.AF_UNIX, 0, 0, LISTENING, 0, SHOW_FILE, INODE_BITS, INODE_BITS)
    asked.send(HEADER.pack(HEADER.size + len(wanted), SOCK_DIAG_BY_FAMILY, REQUEST_ALL, 0, 0) + wanted)
    found: set[File] = set()
    while _take_in(asked.recv(READ_SIZE), found):
        pass
    return found


def _take_in(data: bytes, found: set[File]) -> bool:
    """Adds what one datagram reports; False where it was the last."""
    at = 0
    while at < len(data):
        size, kind, _, _, _ = HEADER.unpack_from(data, at)
        if kind == DONE:
            return False
        if kind == ERROR:
            (code,) = struct.unpack_from("=i", data, at + HEADER.size)
            raise OSError(-code, os.strerror(-code))
        attribute, end = at + HEADER.size + SOCKET_SIZE, at + size
        while attribute + SHORT.size <= end:
            length, name = SHORT.unpack_from(data, attribute)
            if name == FILE_ATTRIBUTE:
                found.add(PAIR.unpack_from(data, attribute + SHORT.size))
            attribute += _aligned(max(length, SHORT.size))
        at += _aligned(size)
    return True


def file_of(status: os.stat_result) -> File:
    device = os.major(status.st_dev) << 20 | os.minor(status.st_dev)
    return status.st_ino & INODE_BITS, device


def _aligned(size: int) -> int:
    return (size + 3) & ~3
