"""Messages between the server and the launcher: a length, a marshalled value, descriptors.

The module uses the standard library only, because both sides import it. `marshal` is safe here: both ends run the same
interpreter, and a command never has an end of these sockets.
"""

from __future__ import annotations

import errno
import marshal
import os
import struct

from app_server.engine.sandbox.launcher.stdlib_min import Any, socket

Value = Any
"""A value that marshal supports: None, bool, int, float, str, bytes, and tuples, lists and dicts of them."""

LENGTH = 4
MAX_DESCRIPTORS = 8
RECEIVE_FLAGS: int = getattr(socket, "MSG_CMSG_CLOEXEC", 0)  # Linux only; elsewhere set after the fact


class Truncated(OSError):
    """A message without all of its descriptors: this process has too many open files."""

    def __init__(self, value: Value, descriptors: list[int]) -> None:
        super().__init__(errno.EMFILE, os.strerror(errno.EMFILE))
        self.value, self.descriptors = value, descriptors
        """Descriptors that did arrive, on which the failure is reported; the caller closes them."""


def pack(value: Value) -> bytes:
    body = marshal.dumps(value)
    return len(body).to_bytes(LENGTH, "big") + body


def descriptors_message(descriptors: list[int]) -> list[tuple[int, int, bytes]]:
    """Return the ancillary data that carries `descriptors` along with the first byte of a message."""
    numbers = struct.pack(f"{len(descriptors)}i", *descriptors)
    return [(socket.SOL_SOCKET, socket.SCM_RIGHTS, numbers)] if descriptors else []


def descriptors_of(ancillary: list[tuple[int, int, bytes]]) -> list[int]:
    """Return the descriptors that came with a message."""
    sent = (
        data for level, kind, data in ancillary if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS)
    )
    return [number for data in sent for (number,) in struct.iter_unpack("i", data[: len(data) // 4 * 4])]


def send(sock: socket.socket, value: Value, descriptors: list[int]) -> None:
    """Send a whole message on a blocking socket."""
    data = pack(value)
    sent = sock.sendmsg([data], descriptors_message(descriptors))
    if sent < len(data):
        sock.sendall(data[sent:])


def receive(sock: socket.socket) -> tuple[Value, list[int]] | None:
    """Receive a whole message from a blocking socket. Return None at its end. Raises Truncated."""
    head, ancillary, flags, _ = sock.recvmsg(LENGTH, socket.CMSG_SPACE(MAX_DESCRIPTORS * 4), RECEIVE_FLAGS)
    descriptors = descriptors_of(ancillary)
    if not RECEIVE_FLAGS:
        for number in descriptors:
            os.set_inheritable(number, False)
    head += receive_exactly(sock, LENGTH - len(head)) if head else b""
    if len(head) < LENGTH:
        return None
    size = int.from_bytes(head, "big")
    body = receive_exactly(sock, size)
    if len(body) < size:
        return None
    if flags & socket.MSG_CTRUNC:
        raise Truncated(marshal.loads(body), descriptors)
    return marshal.loads(body), descriptors


def receive_exactly(sock: socket.socket, size: int) -> bytes:
    """Receive this number of bytes from a blocking socket; fewer at its end."""
    parts: list[bytes] = []
    while size:
        part = sock.recv(min(size, 1 << 20))
        if not part:
            break
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
