"""Answers `initialize` while the server is being loaded, so that no client waits for imports. Fast to import.

It answers the forms of that request that need no further validation, requests that follow at once and need no
engine, and a first request that fails because the client has not initialized. The full server serves everything else.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from app_server.apis.capabilities import initialize_result
from app_server.conversations.begun import BegunRequest
from app_server.core.lazy import Lazy
from app_server.identity import EarlyInitialize, own_user_agent
from app_server.startup.early_answers import EarlyResponder
from app_server.startup.inbox import Inbox, readable, write_all
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

MAX_FIRST_LINE = 1 << 16
"""A longer first line is left for the full server."""

MAX_UNREAD = 1 << 20
"""Bytes read while the server is loaded; the rest stays in the pipe."""

PAUSE_SECONDS = 0.01
"""How long to wait after `initialize` for a request that can be answered before the server is loaded."""

PIPE_BYTES = 1 << 16
"""What a pipe holds that nobody reads."""

READING_SECONDS = 0.2
"""So long is a client that reads a long answer not disturbed."""

MAX_EARLY = 64
"""Requests that are answered before the server is loaded."""

EarlyResponders = Callable[[EarlyInitialize], EarlyResponder]
"""The responder for this client."""


@dataclass(frozen=True, slots=True)
class Handover:
    """What the early handshake passes to the full server."""

    initialize: EarlyInitialize | None
    """The answered `initialize`, if any."""
    unread: bytes
    """Bytes that were read but not served."""
    begun: tuple[BegunRequest, ...] = ()
    """Answered requests for conversations that the server goes on with."""


@dataclass(frozen=True, slots=True)
class AnsweredInitialize:
    """The answer to a first request."""

    response: bytes
    initialize: EarlyInitialize | None = None
    """None: it was refused, or nothing came of it."""


InitializeResponder = Callable[[Message | None], AnsweredInitialize | None]
"""Answers the first message, None being an invalid one, or returns None to leave it to the full server."""


def early_handshake(
    read_fd: int,
    write_fd: int,
    respond: InitializeResponder,
    server: Lazy[object],
    responders: Lazy[EarlyResponders] | None = None,
) -> Handover | None:
    """Wait for the first line and answer it if possible, and then requests that need no server; meanwhile `server` is
    loaded in a thread.

    `responders` are loaded only if a request may be answered before `server` starts to load, because two loading
    threads would share one interpreter. Returns once the server is loaded or the input buffer is full. Returns None if
    the client has closed its end and there is nothing to serve.
    """
    inbox, loading, sending = Inbox(read_fd), _Loading(server), _Sending(write_fd)
    if not inbox.ready(0):
        loading.start()
    early = _answer_first_line(inbox, write_fd, respond)
    begun: tuple[BegunRequest, ...] = ()
    if early is not None and responders is not None and not loading.started:
        begun = _answer_early(inbox, sending, responders.get()(early), loading)
    sending.read_meanwhile(inbox, READING_SECONDS)  # a client that reads a long answer has the processors
    loading.start()
    loading.read_meanwhile(inbox)
    sending.read_meanwhile(inbox)
    loading.close()
    inbox.ended |= not sending.finish()
    return None if inbox.exhausted and not begun else Handover(early, inbox.unread, begun)


class _Background:
    """Something that a thread does. A pipe signals its end, so that it can be polled together with stdin."""

    def __init__(self) -> None:
        self._ended, self._ends = os.pipe()
        self.started = False

    def wait(self, inbox: Inbox, seconds: float | None = None) -> bool:
        """Wait until there is input; False once it has ended, after these seconds, or if it never started."""
        return self.started and readable([inbox.fd, self._ended], seconds) == [inbox.fd]

    def read_meanwhile(self, inbox: Inbox, seconds: float = math.inf) -> None:
        """Read input, as far as there is room, until it has ended, or for so long."""
        deadline = time.monotonic() + seconds
        while not inbox.ended and len(inbox.unread) < MAX_UNREAD:
            rest = None if seconds == math.inf else max(0.0, deadline - time.monotonic())
            if not self.wait(inbox, rest):
                break
            inbox.read()

    def close(self) -> None:
        os.close(self._ended)
        if not self.started:
            os.close(self._ends)


class _Loading(_Background):
    """Loads the server."""

    def __init__(self, server: Lazy[object]) -> None:
        super().__init__()
        self._server = server

    def start(self) -> None:
        if not self.started:
            self.started = True
            self._server.start(lambda: os.close(self._ends))


class _Sending(_Background):
    """Writes answers. A long one, which is the last, is written in a thread: the client may send more first."""

    def __init__(self, fd: int) -> None:
        super().__init__()
        self._fd = fd
        self._thread: threading.Thread | None = None
        self._written = True

    def send(self, data: bytes, *, last: bool) -> bool:
        """False if the client no longer reads, as far as that is known."""
        if not last or len(data) <= PIPE_BYTES:
            self._written = write_all(self._fd, data)
            return self._written
        self.started = True
        try:
            self._thread = threading.Thread(target=self._write, args=(data,), name="long answer", daemon=True)
            self._thread.start()
        except RuntimeError:  # the system has no thread left
            self._thread = None
            self._write(data)
        return self._written

    def finish(self) -> bool:
        """Wait until everything is written. False if the client no longer reads."""
        if self._thread is not None:
            self._thread.join()
        self.close()
        return self._written

    def _write(self, data: bytes) -> None:
        try:
            self._written = write_all(self._fd, data)
        finally:
            os.close(self._ends)


def _answer_first_line(inbox: Inbox, write_fd: int, respond: InitializeResponder) -> EarlyInitialize | None:
    """The client's `initialize`, if its first line is one that can be answered here."""
    line = inbox.take_line(MAX_FIRST_LINE)
    if line is None:
        return None
    answered = respond(_message(line))
    if answered is None:
        inbox.put_back(line)
        return None
    # Smaller than the capacity of a pipe, so this does not block.
    inbox.ended |= not write_all(write_fd, answered.response + b"\n")
    return answered.initialize


def initialize_responder(environment: Mapping[str, str], home: Path) -> InitializeResponder:
    """For clients of the conversation and the thread API."""
    agent = own_user_agent(environment)

    def respond(first: Message | None) -> AnsweredInitialize | None:
        if isinstance(first, Request) and (early := plain_initialize(first)) is not None:
            agent.set_client(early.name, early.version)
            result = initialize_result(agent.text(), home, capabilities=early.capabilities is not None)
            return AnsweredInitialize(dump_response(first.id, result), early)
        error = _error_response(first)
        return None if error is None else AnsweredInitialize(error)

    return respond


def _answer_early(
    inbox: Inbox, sending: _Sending, respond: EarlyResponder, loading: _Loading
) -> tuple[BegunRequest, ...]:
    """Answer requests as long as `respond` supports them, until the server is loaded: a client may read page after
    page. They have the processor to themselves while they come one upon another. A conversation that is opened is the
    last: what follows, and there will be more, is about it.
    """
    initialized = b""
    for _ in range(MAX_EARLY):
        message, line, rest = _next_message(inbox, loading)
        if isinstance(message, Notification) and message.method == INITIALIZED and not initialized:
            initialized, inbox.unread = line, rest  # for the full server
            message, line, rest = _next_message(inbox, loading)
        if not isinstance(message, Request) or (answer := respond(message)) is None:
            break
        inbox.unread = rest
        lines = (*answer.before, answer.response, *answer.notifications)
        inbox.ended |= not sending.send(
            b"".join(line + b"\n" for line in lines), last=answer.begun is not None
        )
        if answer.begun is not None:
            inbox.unread = initialized + inbox.unread
            return (answer.begun,)
    inbox.unread = initialized + inbox.unread
    return ()


def _next_message(inbox: Inbox, loading: _Loading) -> tuple[Message | None, bytes, bytes]:
    """The next message, its line, and what is behind it; the line is not taken. A client that takes its time finds the
    server loading. None once it is loaded.
    """
    deadline = time.monotonic() + PAUSE_SECONDS
    while True:
        line, end, rest = inbox.unread.partition(b"\n")
        if end:
            return _message(line), line + end, rest
        if len(inbox.unread) > MAX_FIRST_LINE or inbox.ended:
            return None, b"", b""
        if not loading.started and not inbox.ready(max(0.0, deadline - time.monotonic())):
            loading.start()
        if loading.started and not loading.wait(inbox):
            return None, b"", b""
        inbox.read()


def _message(line: bytes) -> Message | None:
    """The parsed line; None if it is invalid, which the full server reports."""
    try:
        return parse_message(line)
    except ParseError:
        return None


def plain_initialize(request: Request) -> EarlyInitialize | None:
    """An `initialize` that needs no further validation: the full server would accept it as well."""
    match request:
        case Request(
            method=method,
            params={"clientInfo": {"name": str(name), "version": str(version)} as client} as params,
        ) if method == INITIALIZE and params.keys() <= {"clientInfo", "capabilities"}:
            title, capabilities = client.get("title"), params.get("capabilities")
            if title is None or isinstance(title, str):
                return EarlyInitialize(
                    name, version, capabilities if isinstance(capabilities, dict) else None
                )
    return None


def _error_response(message: Message | None) -> bytes | None:
    """The error for a first request before `initialize`, or for one without `clientInfo`; otherwise None."""
    match message:
        case Request(id=id, method=method, params=dict() as params) if method == INITIALIZE:
            if "clientInfo" in params or "client_info" in params or "protocolVersion" in params:
                return None  # the full server explains what another protocol lacks
            data = {"kind": "invalid_params", "field": "clientInfo"}
            return dump_error(id, INVALID_REQUEST, "Invalid request: missing field `clientInfo`", data)
        case Request(id=id, method=method) if method != INITIALIZE:
            return dump_error(id, INVALID_REQUEST, "Not initialized", {"kind": "not_initialized"})
    return None
