"""Passes bytes between a client on stdin and stdout and a server behind a socket, until one of them ends.

Only line ends are parsed: the bytes after the last one wait for the rest, so that a server that is killed in the middle
of a line costs no client half a message. Each direction buffers little and then stops reading, so that back-pressure
reaches the other end, as over a pipe. Descriptors of the client keep their flags. Fast to import.
"""

from __future__ import annotations

import _socket
import os
import select
import stat

MOST_HELD = 1 << 16
"""Maximum size of the buffer of one direction, and so of a line that waits for its end, in bytes."""

ENDED, DIED = 0, 1
"""Outcomes of a relay: the client or the server ended it, or the server was killed."""

UPGRADE = b"G"
"""First byte of a client that begins with an HTTP request: then there are no lines."""

LEAVES_WITHIN = 5.0
"""Time without a byte from or to the server, after the client has left, until the proxy ends, too, in seconds."""

NOTHING = memoryview(b"")


class ClientGone(Exception):
    """The reader of stdout has closed it."""


class ClientOut:
    """stdout, written without blocking and without changing its flags."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.at_any_time = True
        """Whether a write never blocks; if not, a write of a few bytes does not block once the descriptor is ready."""
        self._socket: _socket.socket | None = None
        kind = os.fstat(fd).st_mode
        if stat.S_ISSOCK(kind):
            self._socket = _socket.socket(fileno=os.dup(fd))
        elif stat.S_ISFIFO(kind):
            try:  # with an open file description of its own
                self.fd = os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            except OSError:
                self.at_any_time = False
        else:
            self.at_any_time = stat.S_ISREG(kind)

    def write(self, data: memoryview) -> memoryview:
        """Write a part of the data and return the rest. Raises ClientGone."""
        try:
            if self._socket is not None:
                return data[self._socket.send(data, _socket.MSG_DONTWAIT) :]
            return data[os.write(self.fd, data if self.at_any_time else data[: select.PIPE_BUF]) :]
        except BlockingIOError:
            return data
        except OSError:
            raise ClientGone from None


class Relay:
    """Two directions. In each, either bytes are buffered, which are written next, or more bytes are read."""

    def __init__(self, server: _socket.socket, stdin: int, stdout: int) -> None:
        self._server, self._stdin = server, stdin
        self._up = self._down = NOTHING
        """Bytes on their way to the server, and to the client."""
        self._tail = b""
        """Beginning of an incomplete line of the server."""
        self._in_lines: bool | None = None
        """Whether the client's bytes are lines; None until it has sent its first byte."""
        self._client_speaks = self._client_is_there = True
        self._poll = select.poll()
        self._watched: dict[int, int] = {}
        self._out = ClientOut(stdout)

    def run(self) -> int:
        """Run the relay, and return its outcome."""
        server = self._server.fileno()
        try:
            while True:
                for fd, events in self._ready(server):
                    if fd == self._stdin:
                        self._hear_client()
                    elif fd == self._out.fd:
                        self._tell_client(events)
                    elif self._up and not events & select.POLLIN:
                        self._tell_server()
                    elif not self._down and (end := self._hear_server()) is not None:
                        return end
        except ClientGone:
            return ENDED

    def _ready(self, server: int) -> list[tuple[int, int]]:
        """Wait until a direction can continue. An end is reported for every watched descriptor, so none is watched that
        has to wait.
        """
        self._watch(self._stdin, self._of_stdin())
        reads, writes = 0 if self._down else select.POLLIN, select.POLLOUT if self._up else 0
        self._watch(server, reads | writes or None)
        self._watch(self._out.fd, select.POLLOUT if self._down else 0)
        waits = self._client_is_there or self._down
        ready = self._poll.poll(None if waits else LEAVES_WITHIN * 1000)
        if not ready:
            raise ClientGone
        return ready

    def _of_stdin(self) -> int | None:
        """Return the events to wait for on stdin: while bytes are buffered, only the end of the client."""
        if not self._client_speaks or (self._up and not self._client_is_there):
            return None
        return 0 if self._up else select.POLLIN

    def _watch(self, fd: int, events: int | None) -> None:
        if self._watched.get(fd) == events:
            return
        if events is None:
            del self._watched[fd]
            self._poll.unregister(fd)
        else:
            self._watched[fd] = events
            self._poll.register(fd, events)

    # --- to the server
    def _hear_client(self) -> None:
        if self._up:  # the client has left; its last bytes are on their way, and are read to their end
            self._client_is_there = False
            return
        try:
            data = os.read(self._stdin, MOST_HELD)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if self._in_lines is None and data:
            self._in_lines = not data.startswith(UPGRADE)
        if data:
            self._up = memoryview(data)
            self._tell_server()
        else:
            self._client_ended()

    def _tell_server(self) -> None:
        try:
            self._up = self._up[self._server.send(self._up) :]
        except BlockingIOError:
            pass
        except OSError:  # the server no longer reads; its remaining output still comes, and then its end
            self._up = NOTHING
            self._client_ended()

    def _client_ended(self) -> None:
        self._client_speaks = self._client_is_there = False
        try:
            self._server.shutdown(_socket.SHUT_WR)
        except OSError:
            pass

    # --- to the client
    def _hear_server(self) -> int | None:
        """Read from the server. Return the outcome of the relay if this ends it."""
        try:
            data = self._server.recv(MOST_HELD)
        except BlockingIOError:
            return None
        except OSError:
            data = b""
        if not data:
            return self._last_words()
        if self._in_lines is not False:
            data = self._whole_lines(data)
        self._down = memoryview(data)
        if self._out.at_any_time and data:
            self._down = self._out.write(self._down)
        return None

    def _whole_lines(self, data: bytes) -> bytes:
        """Return the bytes that may be written, and keep the rest. A line longer than the buffer is
        written in pieces.
        """
        end = data.rfind(b"\n") + 1
        known, self._tail = (self._tail + data[:end], data[end:]) if end else (b"", self._tail + data)
        if len(self._tail) > MOST_HELD:
            known, self._tail = known + self._tail, b""
        return known

    def _tell_client(self, events: int) -> None:
        if not events & select.POLLOUT:
            raise ClientGone  # a closed pipe reports no other event
        self._down = self._out.write(self._down)

    def _last_words(self) -> int:
        """Return the outcome of the relay at the end of the server, after its complete lines were written."""
        if self._has_died():
            return DIED
        rest = memoryview(self._tail)
        while rest:
            self._poll.register(self._out.fd, select.POLLOUT)
            rest = self._out.write(rest) if self._poll.poll() else rest
        return ENDED

    def _has_died(self) -> bool:
        """Return whether the server was killed: a server that ends cleanly ends its own direction, and leaves this one
        until the proxy ends.
        """
        if not self._client_speaks:
            return False  # this direction has ended, too, so the two cases look alike
        try:
            self._server.send(b"")
        except BlockingIOError:
            return False
        except OSError:
            return True
        return False
