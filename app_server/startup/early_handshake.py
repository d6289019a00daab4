"""Answers `initialize` while the rest of the server is still being loaded, so that no client waits for imports.

Answered here are the forms of that request that leave nothing to check, one request that follows at once and needs no
engine, and a first request that cannot be served because nobody has initialized. Whatever else comes first is left for
the full server, which then serves it like any other line. Imports nothing that takes time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from app_server.apis.capabilities import InvalidCapability, initialize_result, parse_capabilities
from app_server.core.lazy import Lazy
from app_server.identity import Introduction, UserAgent, own_user_agent
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

if TYPE_CHECKING:
    from protocol.base import Json

MAX_FIRST_LINE = 1 << 16
"""A longer first line is left for the full server."""

MAX_UNREAD = 1 << 20
"""So much is taken in while the server is loaded; the rest waits in the pipe."""

PAUSE_SECONDS = 0.01
"""So long a client has to follow `initialize` with a request that may be answered before the loading begins."""

EarlyAnswer = Callable[[Request], bytes | None]
"""The answer to a request that needs no engine, or None."""


@dataclass(frozen=True, slots=True)
class Handover:
    """What passed before the full server was there."""

    introduction: Introduction | None
    """Of the client; None where no `initialize` was answered."""
    unread: bytes
    """What was read and is still to be served."""


def early_handshake(
    read_fd: int,
    write_fd: int,
    environment: Mapping[str, str],
    home: Path,
    server: Lazy[object],
    early_answer: Lazy[EarlyAnswer] | None = None,
) -> Handover | None:
    """Wait for the first line and answer it where that is our part; `server` is loaded in a thread meanwhile.

    `early_answer` is loaded only where a request may be answered before the server's loading begins: both need the
    interpreter. Returns once the server is loaded, or nothing more can be taken in until it is; None where the client
    has left and nothing is left to serve.
    """
    inbox, loading = Inbox(read_fd), _Loading(server)
    if not inbox.ready(0):
        loading.start()
    introduction = _answer_first_line(inbox, write_fd, own_user_agent(environment), home)
    if introduction is not None and early_answer is not None and not loading.started:
        _answer_early(inbox, write_fd, early_answer.get())
    loading.start()
    while not inbox.ended and len(inbox.unread) < MAX_UNREAD and loading.goes_on(beside=inbox):
        inbox.read()
    loading.forget()
    return None if inbox.over else Handover(introduction, inbox.unread)


class _Loading:
    """The loading of the server in a thread, whose end can be waited for beside other descriptors."""

    def __init__(self, server: Lazy[object]) -> None:
        self._server = server
        self._ended, self._loads = os.pipe()
        self.started = False

    def start(self) -> None:
        if not self.started:
            self.started = True
            self._server.start(lambda: os.close(self._loads))

    def goes_on(self, beside: Inbox) -> bool:
        """Waits until there is something to read; False once the loading has ended before."""
        ready = readable([beside.fd, self._ended], None)
        return self._ended not in ready

    def forget(self) -> None:
        """Its end is of no interest any more."""
        os.close(self._ended)


def _answer_first_line(inbox: Inbox, write_fd: int, agent: UserAgent, home: Path) -> Introduction | None:
    """What the client introduced itself with, if its first line was an `initialize` that is answered here."""
    line = inbox.take_line(MAX_FIRST_LINE)
    if line is None:
        return None
    first = _message(line)
    if isinstance(first, Request) and (introduction := plain_introduction(first)) is not None:
        agent.introduce(introduction.name, introduction.version)
        announced = introduction.capabilities is not None
        result = initialize_result(agent.text(), home, capabilities=announced)
        answer = dump_response(first.id, result)
        # Less than a pipe holds, so this does not wait.
        inbox.ended |= not write_all(write_fd, answer + b"\n")
        return introduction
    if (refusal := _refusal(first)) is not None:
        inbox.ended |= not write_all(write_fd, refusal + b"\n")
    else:
        inbox.put_back(line)
    return None


def _answer_early(inbox: Inbox, write_fd: int, answer: EarlyAnswer) -> None:
    """Answer one request, if it comes at once and is of that kind."""
    deadline = time.monotonic() + PAUSE_SECONDS
    initialized = b""
    while True:
        line, end, rest = inbox.unread.partition(b"\n")
        if not end:
            too_long = len(inbox.unread) > MAX_FIRST_LINE
            if too_long or inbox.ended or not inbox.ready(max(0.0, deadline - time.monotonic())):
                break
            inbox.read()
            continue
        message = _message(line)
        if isinstance(message, Notification) and message.method == INITIALIZED and not initialized:
            initialized, inbox.unread = line + end, rest  # it can wait
            continue
        if isinstance(message, Request) and (answered := answer(message)) is not None:
            inbox.unread = rest
            inbox.ended |= not write_all(write_fd, answered + b"\n")
        break
    inbox.unread = initialized + inbox.unread


def _message(line: bytes) -> Message | None:
    """None where it is none; the full server says what is wrong with it."""
    try:
        return parse_message(line)
    except ParseError:
        return None


def plain_introduction(request: Request) -> Introduction | None:
    """What an `initialize` says, if it leaves nothing to check: the full server would accept it, too."""
    match request:
        case Request(
            method=method,
            params={"clientInfo": {"name": str(name), "version": str(version)} as client} as params,
        ) if method == INITIALIZE and params.keys() <= {"clientInfo", "capabilities"}:
            title, capabilities = client.get("title"), params.get("capabilities")
            if (title is None or isinstance(title, str)) and _plain_capabilities(capabilities):
                return Introduction(name, version, capabilities)
    return None


def _plain_capabilities(capabilities: Json) -> bool:
    """Those that an API here knows have to be of the right type; others are ignored."""
    if capabilities is None:
        return True
    if not isinstance(capabilities, dict):
        return False
    try:
        parse_capabilities(capabilities)
    except InvalidCapability:
        return False
    return True


def _refusal(message: Message | None) -> bytes | None:
    """The answer to a first request that comes too early or introduces nobody; None if it is neither."""
    match message:
        case Request(id=id, method=method, params=dict() as params) if method == INITIALIZE:
            if "clientInfo" in params or "client_info" in params:
                return None
            data = {"kind": "invalid_params", "field": "clientInfo"}
            return dump_error(id, INVALID_REQUEST, "Invalid request: missing field `clientInfo`", data)
        case Request(id=id, method=method) if method != INITIALIZE:
            return dump_error(id, INVALID_REQUEST, "Not initialized", {"kind": "not_initialized"})
    return None
