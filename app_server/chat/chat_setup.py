"""What a chat is begun with: the server's command line, its environment, folders."""

from __future__ import annotations

import argparse
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from app_server.client.command_line import server_command, working_folder
from app_server.demo.demo_model import demo_surroundings
from protocol.base import Json
from protocol.records import dataclass


@dataclass(frozen=True, slots=True)
class ChatSetup:
    command: tuple[str, ...]
    environment: Mapping[str, str]
    cwd: Path
    home: Path | None
    """Where what was typed is kept; None: nowhere."""
    resume: str | None = None


@asynccontextmanager
async def chat_setup(args: argparse.Namespace) -> AsyncIterator[ChatSetup]:
    """Raises DemoSetupError, InvalidCommandLine."""
    given: Mapping[str, Json] = vars(args)
    if not args.demo:
        home = os.environ.get("CODEX_HOME") or os.path.expanduser("~/.codex")
        yield ChatSetup(server_command(given), os.environ, working_folder(args.cd), Path(home), args.resume)
        return
    async with demo_surroundings(os.environ) as workspace:
        yield ChatSetup(server_command(given), workspace.environment, workspace.repository, None)
