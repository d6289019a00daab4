"""A whole chat: a server, the thread that is talked to, and a frontend that takes what is typed."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

import anyio
from anyio.abc import TaskGroup
from rich.console import Console

from app_server.chat.chat_setup import ChatSetup
from app_server.chat.conversation import ChatConversation
from app_server.chat.event_view import EventView
from app_server.client.app_server import AppServer
from app_server.client.link import Connector

Frontend = Callable[[ChatConversation, TaskGroup, ChatSetup], Awaitable[None]]
"""Takes what is typed until the user leaves."""


async def chat_session(connector: Connector, setup: ChatSetup, console: Console, frontend: Frontend) -> None:
    """Raises AppServerError, also in exception groups."""
    async with AppServer.connect(connector) as server, anyio.create_task_group() as group:
        view = EventView(console)
        chat = ChatConversation(server, view, group, time.monotonic)
        await (chat.start(setup.cwd) if setup.resume is None else chat.resume(setup.resume))
        view.line(f"{chat.model} in {chat.cwd}; /help lists what can be typed", "dim")
        await frontend(chat, group, setup)
        group.cancel_scope.cancel()
