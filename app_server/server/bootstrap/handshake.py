"""Answers `initialize` while the server is being loaded, and buffers what the client sends meanwhile. Fast to import.

It answers the forms of that request that need no further validation, and a first request that fails because the client
has not initialized. The full server serves everything else.
"""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Mapping
from pathlib import Path

from app_server.engine.support.client_info import EarlyInitialize, initialize_result, own_user_agent
from app_server.engine.support.lazy import Lazy
from app_server.engine.support.light_dataclasses import dataclass
from app_server.server.bootstrap.claim import write_all
from app_server_protocol import jsonrpc
from app_server_protocol.jsonrpc import INITIALIZE

READ_SIZE = 1 << 16


class StdinBuffer:
    """One descriptor, read in the main thread."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.unread = b""
        """Bytes that were read but not taken."""
        self.ended = False
        """Whether the client has closed its end, or no longer reads."""

    @property
    def exhausted(self) -> bool:
        """Return whether the input has ended, and no whole line is left to serve."""
        return self.ended and b"\n" not in self.unread

    def read(self) -> None:
        """Wait for more input. An invalid descriptor counts as the end."""
        while True:
            try:
                more = os.read(self.fd, READ_SIZE)
            except BlockingIOError:
                readable([self.fd], None)
                continue
            except OSError:
                more = b""
            break
        self.unread += more
        self.ended = not more

    def take_line(self, limit: int) -> bytes | None:
        """Wait for the first line and return it without its end; None if the input ends before, or exceeds `limit`."""
        while b"\n" not in self.unread:
            self.read()
            if self.ended or len(self.unread) > limit:
                return None
        line, _, self.unread = self.unread.partition(b"\n")
        return line

    def put_back(self, line: bytes) -> None:
        self.unread = line + b"\n" + self.unread


def readable(fds: list[int], seconds: float | None) -> list[int]:
    """Return the descriptors with input or an end; all of them if select(2) fails."""
    try:
        return select.select(fds, [], [], seconds)[0]
    except (OSError, ValueError):
        return fds


MAX_FIRST_LINE = 1 << 16
"""Maximum size of a first line that is answered here, in bytes; a longer one is left for the full server."""

MAX_UNREAD = 1 << 20
"""Maximum size of input that is read while the server is loaded, in bytes; the rest stays in the pipe."""


@dataclass(frozen=True, slots=True)
class EarlyHandshake:
    """State that the early handshake passes to the full server."""

    initialize: EarlyInitialize | None
    """The answered `initialize`; None if there was none."""
    unread: bytes
    """Bytes that were read but not served."""


@dataclass(frozen=True, slots=True)
class AnsweredInitialize:
    """The answer to a first request."""

    response: bytes
    initialize: EarlyInitialize | None = None
    """The accepted `initialize`; None if it was refused, or has no effect."""


InitializeResponder = Callable[[jsonrpc.Message | None], AnsweredInitialize | None]
"""Function that answers the first message, which is None if it is invalid. It returns None to leave the message to the
full server.
"""


def early_handshake(
    inbox: StdinBuffer, write_fd: int, respond: InitializeResponder, server: Lazy[object]
) -> EarlyHandshake | None:
    """Load `server` in a thread; meanwhile wait for the first line and answer it if possible.

    Returns once the server is loaded or the input buffer is full. Returns None if the client has closed its end and
    there is nothing to serve.
    """
    ended, ends = os.pipe()
    waits = bool(readable([inbox.fd], 0))
    if not waits:
        server.start(lambda: os.close(ends))
    early = _answer_first_line(inbox, write_fd, respond)
    if waits:
        server.start(lambda: os.close(ends))
    while (
        not inbox.ended and len(inbox.unread) < MAX_UNREAD and readable([inbox.fd, ended], None) == [inbox.fd]
    ):
        inbox.read()
    os.close(ended)
    return None if inbox.exhausted else EarlyHandshake(early, inbox.unread)


def spoken_method(unread: bytes) -> str | None:
    """Return the method of the first request that waits; None if there is none."""
    for line in unread.split(b"\n")[:-1]:
        message = message_in(line)
        if isinstance(message, jsonrpc.Request):
            return message.method
    return None


def _answer_first_line(
    inbox: StdinBuffer, write_fd: int, respond: InitializeResponder
) -> EarlyInitialize | None:
    """Answer the client's `initialize`, if its first line is one that can be answered here."""
    line = inbox.take_line(MAX_FIRST_LINE)
    if line is None:
        return None
    answered = respond(message_in(line))
    if answered is None:
        inbox.put_back(line)
        return None
    # The answer is smaller than the capacity of a pipe, so this write does not block.
    inbox.ended |= not write_all(write_fd, answered.response + b"\n")
    return answered.initialize


def initialize_responder(environment: Mapping[str, str], home: Path) -> InitializeResponder:
    """Return the responder for clients of the conversation and the thread API."""
    agent = own_user_agent(environment)

    def respond(first: jsonrpc.Message | None) -> AnsweredInitialize | None:
        if isinstance(first, jsonrpc.Request) and (early := plain_initialize(first)) is not None:
            agent.set_client(early.name, early.version)
            result = initialize_result(agent.text(), home, capabilities=early.capabilities is not None)
            return AnsweredInitialize(jsonrpc.dump_response(first.id, result), early)
        error = _error_response(first)
        return None if error is None else AnsweredInitialize(error)

    return respond


def message_in(line: bytes) -> jsonrpc.Message | None:
    """Parse a line; None if it is invalid, which the full server reports."""
    try:
        return jsonrpc.parse_message(line)
    except jsonrpc.ParseError:
        return None


def plain_initialize(request: jsonrpc.Request) -> EarlyInitialize | None:
    """Return an `initialize` that needs no further validation, because the full server would accept it as well; else
    None.
    """
    match request:
        case jsonrpc.Request(
            method=method,
            params={"clientInfo": {"name": str(name), "version": str(version)} as client} as params,
        ) if method == INITIALIZE and params.keys() <= {"clientInfo", "capabilities"}:
            title, capabilities = client.get("title"), params.get("capabilities")
            if title is None or isinstance(title, str):
                return EarlyInitialize(
                    name, version, capabilities if isinstance(capabilities, dict) else None
                )
    return None


def _error_response(message: jsonrpc.Message | None) -> bytes | None:
    """Return the error for a first request before `initialize`, or for an `initialize` without `clientInfo`; otherwise
    None.
    """
    match message:
        case jsonrpc.Request(id=id, method=method, params=dict() as params) if method == INITIALIZE:
            if "clientInfo" in params or "client_info" in params or "protocolVersion" in params:
                return None  # the full server explains what a client of another protocol has to change
            data = {"kind": "invalid_params", "field": "clientInfo"}
            return jsonrpc.dump_error(
                id, jsonrpc.INVALID_REQUEST, "Invalid request: missing field `clientInfo`", data
            )
        case jsonrpc.Request(id=id, method=method) if method != INITIALIZE:
            return jsonrpc.dump_error(
                id, jsonrpc.INVALID_REQUEST, "Not initialized", {"kind": "not_initialized"}
            )
    return None
