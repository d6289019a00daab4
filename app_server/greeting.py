"""Answers `initialize` while the rest of the server is still being loaded, so that no client waits for imports.

Only the plain form of that one request is answered here, one that follows at once and needs no engine, and a first
request that cannot be served because nobody has greeted. Whatever else comes first is left for the full server, which
then serves it like any other line. Imports nothing that takes time.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable, Mapping

from app_server import __version__
from app_server.handlers.user_agent import UserAgent
from protocol.jsonrpc import (
    INVALID_REQUEST,
    Message,
    Notification,
    ParseError,
    Request,
    dump_error,
    dump_response,
    parse_message,
)
from protocol.names import INITIALIZE, INITIALIZED
from protocol.records import dataclass

READ_SIZE = 1 << 16
MAX_FIRST_LINE = 1 << 16
"""A longer first line is no plain `initialize`."""

MAX_UNREAD = 1 << 20
"""So much is taken in while the server is loaded; the rest waits in the pipe."""

PAUSE_SECONDS = 0.01
"""So long a client has to follow `initialize` with a request that may be answered before the loading begins."""


@dataclass(frozen=True, slots=True)
class Greeting:
    """What happened before the server was there."""

    user_agent: UserAgent
    done: bool
    """Whether `initialize` was answered."""
    unread: bytes
    """What was read and is still to be served."""


EarlyAnswer = Callable[[Request], bytes | None]
"""The answer to a request that needs no engine, or None."""


def greet(
    read_fd: int,
    write_fd: int,
    environment: Mapping[str, str],
    load: Callable[[], None],
    early: Callable[[], EarlyAnswer] | None = None,
) -> Greeting | None:
    """Wait for the first line and answer it where that is our part; `load` runs in a thread meanwhile.

    `early` is called only where a request may be answered before the loading begins: both need the interpreter.
    Returns once everything is loaded; None where the client has left and nothing is left to serve.
    """
    agent = own_user_agent(environment)
    loaded, still_loading = os.pipe()

    def work() -> None:
        try:
            load()
        finally:
            os.close(still_loading)

    loading = _Loading(work)
    if not _ready(read_fd, 0):
        loading.start()
    line, unread, ended = _first_line(read_fd)
    first = _message(line) if line is not None else None
    client = _plain_initialize(first)
    if client is not None:
        agent.introduce(client.name, client.version)
        # Less than a pipe holds, so this cannot block.
        os.write(write_fd, dump_response(client.id, _result(agent)) + b"\n")
        if early is not None and not loading.started:
            unread, ended = _answer_early(read_fd, write_fd, unread, early())
    elif (refusal := _refusal(first)) is not None:
        ended = ended or not _write(write_fd, refusal + b"\n")
    elif line is not None:
        unread = line + b"\n" + unread
    if not loading.started:
        loading.start()
    while not _over(ended, unread) and not _ready(loaded, 0):
        if ended or len(unread) >= MAX_UNREAD:
            break
        if read_fd in _readable(read_fd, loaded):
            more = _read(read_fd)
            unread, ended = unread + more, not more
    if not _over(ended, unread):
        loading.join()
    os.close(loaded)
    return None if _over(ended, unread) else Greeting(agent, client is not None, unread)


class _Loading:
    """The thread that loads the server."""

    def __init__(self, work: Callable[[], None]) -> None:
        self.started = False
        self._work = work
        self._thread = threading.Thread(target=work, name="load", daemon=True)

    def start(self) -> None:
        """Loads here and now where the system gives no thread: the client waits a little longer for its answer."""
        self.started = True
        try:
            self._thread.start()
        except RuntimeError:
            self._work()

    def join(self) -> None:
        if self._thread.ident is not None:
            self._thread.join()


def _answer_early(read_fd: int, write_fd: int, unread: bytes, answer: EarlyAnswer) -> tuple[bytes, bool]:
    """Answer one request, if it comes at once and is of that kind. Gives what is left for the full server, and whether
    the client has closed its end.
    """
    deadline = time.monotonic() + PAUSE_SECONDS
    kept = b""
    while True:
        line, end, rest = unread.partition(b"\n")
        if not end:
            if len(unread) > MAX_FIRST_LINE or not _ready(read_fd, max(0.0, deadline - time.monotonic())):
                return kept + unread, False
            more = _read(read_fd)
            if not more:
                return kept + unread, True
            unread += more
            continue
        match message := _message(line):
            case Notification(method=method) if method == INITIALIZED and not kept:  # it can wait
                kept, unread = line + end, rest
            case Request():
                said = answer(message)
                if said is None:
                    return kept + unread, False
                return kept + rest, not _write(write_fd, said + b"\n")
            case _:
                return kept + unread, False


def _write(fd: int, data: bytes) -> bool:
    """False where nobody reads any more."""
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(fd, rest) :]
        except BlockingIOError:
            select.select([], [fd], [])
        except OSError:
            return False
    return True


def _over(ended: bool, unread: bytes) -> bool:
    """The client has left and no whole line of it is still to be served."""
    return ended and b"\n" not in unread


def own_user_agent(environment: Mapping[str, str]) -> UserAgent:
    system = os.uname()
    return UserAgent(
        version=__version__,
        system=f"{system.sysname} {system.release}",
        machine=system.machine,
        terminal=environment.get("TERM_PROGRAM") or environment.get("TERM") or "unknown",
    )


def _ready(fd: int, seconds: float) -> bool:
    try:
        return bool(select.select([fd], [], [], seconds)[0])
    except (OSError, ValueError):
        return True


def _readable(*fds: int) -> list[int]:
    """Those with something to read, or an end, waiting for the first."""
    try:
        return select.select(fds, [], [])[0]
    except (OSError, ValueError):
        return list(fds)


def _read(fd: int) -> bytes:
    """Empty where the client has closed its end, or there never was one."""
    while True:
        try:
            return os.read(fd, READ_SIZE)
        except BlockingIOError:
            select.select([fd], [], [])
        except OSError:
            return b""


def _first_line(fd: int) -> tuple[bytes | None, bytes, bool]:
    """The first line without its end, and what followed it; None where it ended or grew too long before one. At last
    whether the client has closed its end.
    """
    data = b""
    while b"\n" not in data:
        more = _read(fd)
        data += more
        if not more or len(data) > MAX_FIRST_LINE:
            return None, data, not more
    line, _, unread = data.partition(b"\n")
    return line, unread, False


@dataclass(frozen=True, slots=True)
class _Client:
    id: int | str
    name: str
    version: str


def _message(line: bytes) -> Message | None:
    """None where it is none; the full server says what is wrong with it."""
    try:
        return parse_message(line)
    except ParseError:
        return None


def _plain_initialize(message: Message | None) -> _Client | None:
    """The client, if the message is a request that leaves nothing to check."""
    match message:
        case Request(
            id=id,
            method=method,
            params={"clientInfo": {"name": str(name), "version": str(version)}} as params,
        ) if method == INITIALIZE and params.keys() == {"clientInfo"}:
            title = params["clientInfo"].get("title")
            return _Client(id, name, version) if title is None or isinstance(title, str) else None
    return None


def _refusal(message: Message | None) -> bytes | None:
    """The answer to a first request that comes too early or greets without a name; None if it is neither."""
    match message:
        case Request(id=id, method=method, params=dict() as params) if method == INITIALIZE:
            if "clientInfo" in params or "client_info" in params:
                return None
            data = {"kind": "invalid_params", "field": "clientInfo"}
            return dump_error(id, INVALID_REQUEST, "Invalid request: missing field `clientInfo`", data)
        case Request(id=id, method=method) if method != INITIALIZE:
            return dump_error(id, INVALID_REQUEST, "Not initialized", {"kind": "not_initialized"})
    return None


def _result(agent: UserAgent) -> bytes:
    text = agent.text().replace("\\", "\\\\").replace('"', '\\"')
    return f'{{"userAgent":"{text}"}}'.encode("ascii")
