"""A whole chat: a server, the thread that is talked to, and a frontend that takes what is typed."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import anyio
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectReceiveStream
from rich.console import Console

from app_server.chat.conversation import ChatConversation
from app_server.chat.event_view import EventView
from app_server.client.app_server import AppServer
from app_server.client.events import ServerEvent
from app_server.client.link import Connector

Frontend = Callable[[ChatConversation, TaskGroup, Path | None], Awaitable[None]]
"""Takes what is typed until the user leaves, and keeps it in a home, if there is one."""

MOST_WARNINGS: Final = 100
"""That wait to be shown."""


async def chat_session(
    connector: Connector,
    console: Console,
    frontend: Frontend,
    cwd: Path,
    home: Path | None,
    resume: str | None = None,
) -> None:
    """Chat until the user leaves. Raises AppServerError, also in exception groups."""
    view = EventView(console)
    warn, warnings = anyio.create_memory_object_stream[str](MOST_WARNINGS)

    def keep(text: str, event: ServerEvent) -> None:
        """Keep a warning to be shown, but none beyond those that wait: it would say nothing new."""
        with suppress(anyio.WouldBlock, anyio.BrokenResourceError):
            warn.send_nowait(text)

    async with (
        AppServer.connect(connector, on_warning=keep) as server,
        anyio.create_task_group() as group,
    ):
        group.start_soon(_show_warnings, warnings, view, name="warnings")
        chat = ChatConversation(server, view, group, time.monotonic)
        await (chat.start(cwd) if resume is None else chat.resume(resume))
        view.line(f"{chat.model} in {chat.cwd}; /help lists what can be typed", "dim")
        await frontend(chat, group, home)
        group.cancel_scope.cancel()


async def _show_warnings(warnings: MemoryObjectReceiveStream[str], view: EventView) -> None:
    async with warnings:
        async for text in warnings:
            view.warning(text)
