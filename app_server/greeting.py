"""Answers `initialize` while the rest of the server is still being loaded, so that no client waits for imports.

Only the plain form of that one request is answered here. Whatever else comes first, mistakes included, is left for
the full server, which then serves it like any other line. Imports nothing that takes time.
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from app_server import __version__
from app_server.handlers.user_agent import UserAgent
from protocol.jsonrpc import ParseError, Request, dump_response, parse_message
from protocol.names import INITIALIZE

READ_SIZE = 1 << 16
MAX_FIRST_LINE = 1 << 16
"""A longer first line is no plain `initialize`."""


@dataclass(frozen=True, slots=True)
class Greeting:
    """What happened before the server was there."""

    user_agent: UserAgent
    done: bool
    """Whether `initialize` was answered."""
    unread: bytes
    """What was read and is still to be served."""


def greet(read_fd: int, write_fd: int, environment: Mapping[str, str], load: Callable[[], None]) -> Greeting:
    """Wait for the first line; `load` runs in a thread meanwhile, and has ended when this returns."""
    agent = own_user_agent(environment)
    loading = threading.Thread(target=load, name="load", daemon=True)
    if not _ready(read_fd):
        loading.start()
    line, unread = _first_line(read_fd)
    name_and_version = _plain_initialize(line) if line is not None else None
    if name_and_version is not None:
        id, name, version = name_and_version
        agent.introduce(name, version)
        # Less than a pipe holds, so this cannot block.
        os.write(write_fd, dump_response(id, _result(agent)) + b"\n")
    elif line is not None:
        unread = line + b"\n" + unread
    if not loading.is_alive() and loading.ident is None:
        load()
    elif loading.ident is not None:
        loading.join()
    return Greeting(agent, name_and_version is not None, unread)


def own_user_agent(environment: Mapping[str, str]) -> UserAgent:
    system = os.uname()
    return UserAgent(
        version=__version__,
        system=f"{system.sysname} {system.release}",
        machine=system.machine,
        terminal=environment.get("TERM_PROGRAM") or environment.get("TERM") or "unknown",
    )


def _ready(fd: int) -> bool:
    try:
        return bool(select.select([fd], [], [], 0)[0])
    except (OSError, ValueError):
        return True


def _first_line(fd: int) -> tuple[bytes | None, bytes]:
    """The first line without its end, and what followed it; None where it ended or grew too long before one."""
    data = b""
    while b"\n" not in data:
        try:
            more = os.read(fd, READ_SIZE)
        except BlockingIOError:
            select.select([fd], [], [])
            continue
        except OSError:
            more = b""
        data += more
        if not more or len(data) > MAX_FIRST_LINE:
            return None, data
    line, _, unread = data.partition(b"\n")
    return line, unread


def _plain_initialize(line: bytes) -> tuple[int | str, str, str] | None:
    """Id, name and version of the client, if the line is a request that leaves nothing to check."""
    try:
        message = parse_message(line)
    except ParseError:
        return None
    match message:
        case Request(
            id=id,
            method=method,
            params={"clientInfo": {"name": str(name), "version": str(version)}} as params,
        ) if method == INITIALIZE and params.keys() == {"clientInfo"}:
            title = params["clientInfo"].get("title")
            return (id, name, version) if title is None or isinstance(title, str) else None
    return None


def _result(agent: UserAgent) -> bytes:
    text = agent.text().replace("\\", "\\\\").replace('"', '\\"')
    return f'{{"userAgent":"{text}"}}'.encode("ascii")
