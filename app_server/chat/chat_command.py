"""Runs `app-server chat`: the server as a subprocess, and a terminal or plain lines in front of it."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import anyio

from app_server.chat.conversation import ChatConversation
from app_server.client.app_server import AppServer
from app_server.client.command_line import server_command
from app_server.client.failures import AppServerError
from protocol.base import Json
from protocol.records import dataclass

MISSING_EXTRA = "app-server chat needs prompt_toolkit and rich: pip install 'app-server[chat]'"


@dataclass(frozen=True, slots=True)
class ChatSetup:
    command: tuple[str, ...]
    environment: Mapping[str, str]
    cwd: Path
    home: Path | None
    """Where what was typed is kept; None: nowhere."""
    resume: str | None


def run_chat(args: argparse.Namespace) -> int:
    try:
        return anyio.run(_chat, args)
    except AppServerError as error:
        print(f"app-server chat: {error}", file=sys.stderr)  # noqa: T201
        return 1


async def _chat(args: argparse.Namespace) -> int:
    try:
        from rich.console import Console  # noqa: PLC0415  an extra

        from app_server.chat.event_view import EventView  # noqa: PLC0415  the same
    except ImportError:
        print(MISSING_EXTRA, file=sys.stderr)  # noqa: T201
        return 2
    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    async with _set_up(args) as setup, AsyncExitStack() as stack:
        server = await stack.enter_async_context(
            AppServer.spawn(setup.command, environment=setup.environment, cwd=setup.cwd)
        )
        async with anyio.create_task_group() as group:
            view = EventView(Console(force_terminal=terminal or None, highlight=False))
            chat = ChatConversation(server, view, group, time.monotonic)
            await (chat.start(setup.cwd) if setup.resume is None else chat.resume(setup.resume))
            view.line(f"{chat.model} in {chat.cwd}; /help lists what can be typed", "dim")
            await _talk(chat, group, setup, terminal=terminal)
            group.cancel_scope.cancel()
    return 0


async def _talk(
    chat: ChatConversation, group: anyio.abc.TaskGroup, setup: ChatSetup, *, terminal: bool
) -> None:
    if terminal:
        from app_server.chat.terminal_chat import TerminalChat  # noqa: PLC0415  an extra

        await TerminalChat(chat, group, setup.home).run()
    else:
        from app_server.chat.plain_chat import plain_chat  # noqa: PLC0415  not in a terminal

        await plain_chat(chat, sys.stdin)


@asynccontextmanager
async def _set_up(args: argparse.Namespace) -> AsyncIterator[ChatSetup]:
    given: Mapping[str, Json] = vars(args)
    cwd = (Path.cwd() / (args.cd or ".")).resolve()
    if not args.demo:
        home = os.environ.get("CODEX_HOME") or os.path.expanduser("~/.codex")
        yield ChatSetup(server_command(given), os.environ, cwd, Path(home), args.resume)
        return
    from app_server.chat.demo_model import DemoModel  # noqa: PLC0415  only for the demo
    from app_server.demo.scripted_model import ScriptedModel  # noqa: PLC0415
    from app_server.demo.workspace import temporary_workspace  # noqa: PLC0415

    async with temporary_workspace(os.environ) as workspace, ScriptedModel(DemoModel()).serving() as url:
        workspace.configure(url)
        yield ChatSetup(server_command(given), workspace.environment, workspace.repository, None, None)
