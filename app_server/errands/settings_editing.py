"""`app-server config edit`: the user's editor with a draft of `config.toml`, which takes the file's place once a server
can use it.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import anyio

from app_server.beneath import Beneath
from app_server.client.app_server import AppServer
from app_server.client.command_line import FAILED, reason
from app_server.client.events import ServerEvent
from app_server.client.failures import AppServerError
from app_server.core.config.types import CliOverrides
from app_server.errands.errand import agreed, name_of, say, with_server
from app_server.standard_streams import complain
from app_server.startup.launch import server_home
from protocol.v2.config import CONFIG_READ, ConfigReadParams

FILE = "config.toml"
NEW_FILE_MODE = 0o600


def run_edit(args: argparse.Namespace) -> int:
    home = server_home(os.environ)
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = (home / FILE).resolve()  # settings that are kept elsewhere stay there
    before = file.read_bytes() if file.exists() else b""
    folder = Path(tempfile.mkdtemp(prefix="app-server-config-"))
    draft = folder / FILE
    draft.write_bytes(before)
    try:
        problem = _edited(draft)
        while problem is not None and sys.stdin.isatty() and sys.stderr.isatty():
            complain(name_of(args), problem)
            if not agreed("Edit it again?"):
                break
            problem = _edited(draft)
        after = draft.read_bytes()
        if problem is None and file.exists() and file.read_bytes() != before:
            problem = f"{file} was changed meanwhile"
    except OSError as error:
        problem, after = f"{error.filename or draft}: {error.strerror}", before
    if problem is not None:
        complain(name_of(args), problem, f"nothing was changed; the draft is {draft}")
        return FAILED
    shutil.rmtree(folder, ignore_errors=True)
    if after == before:
        say("nothing was changed")
        return 0
    mode = stat.S_IMODE(file.stat().st_mode) if file.exists() else NEW_FILE_MODE
    with Beneath.named_by_user(file.parent) as place:
        place.replace(file.name, after, mode)
    say(f"wrote {file}")
    return 0


def _edited(draft: Path) -> str | None:
    """Let the user edit the draft; return why it cannot be used. Raises OSError where there is no editor."""
    editor = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi")
    before = signal.signal(signal.SIGINT, lambda *_: None)  # Ctrl-C is the editor's while it runs
    try:
        status = subprocess.run([*editor, str(draft)], check=False).returncode
    finally:
        signal.signal(signal.SIGINT, before)
    if status != 0:
        return f"the editor ended with exit status {status}"
    return anyio.run(_problem, draft.parent)


async def _problem(home: Path) -> str | None:
    """Return why no thread could begin with the settings in that folder; show what a server warns of."""

    async def check(server: AppServer) -> int:
        await server.request(CONFIG_READ, ConfigReadParams())
        return 0

    warnings: list[str] = []

    def note(text: str, event: ServerEvent) -> None:
        warnings.append(text)

    try:
        await with_server(check, CliOverrides(), note, home)
    except AppServerError as error:
        return reason(error)
    for warning in warnings:
        say(f"warning: {warning}")
    return None
