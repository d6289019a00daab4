"""The interface between the library and a server: a transport that can be closed, and how one is opened.

`subprocess_link` implements it for a process; a program that hosts the server itself brings its own connector
(`app_server.in_process`).
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Protocol

from app_server.transport.framing import Transport


class ServerLink(Transport, Protocol):
    """An open connection to one server."""

    async def close(self) -> None:
        """End the server's input, which makes it store everything and end."""
        ...

    async def cause_of_end(self) -> str:
        """Why the server has ended, for a person. Called once its output has ended; returns within seconds."""
        ...


class Connector(Protocol):
    """Opens a connection to a new server. When the context is left, nothing of that server is left."""

    def open(self) -> AbstractAsyncContextManager[ServerLink]: ...
