"""`app-server config`: shows settings and changes them in `config.toml`. Nothing is written that no thread could begin
with, nor a setting that nobody knows. `config edit` gives the user's editor a draft, which takes the file's place once
a server can use it.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import anyio

from app_server.beneath import Beneath
from app_server.client.app_server import AppServer
from app_server.client.command_line import FAILED, InvalidCommandLine, reason
from app_server.client.events import ServerEvent
from app_server.client.failures import AppServerError
from app_server.core.config.layers import split_key, toml_value, value_at
from app_server.core.config.types import CliOverrides
from app_server.errands.errand import NotDone, agreed, name_of, one_server, say, show, show_json
from app_server.standard_streams import complain
from app_server.startup.launch import server_home
from app_server_protocol.structs import Json
from app_server_protocol.v2 import config as wire
from app_server_protocol.v2.server import ConfigWarningNotification


async def show_setting(server: AppServer, args: argparse.Namespace) -> None:
    read = await server.request(wire.CONFIG_READ, wire.ConfigReadParams(cwd=os.path.realpath(".")))
    settings: Json = read.config.to_value()
    shown = settings if args.key is None else value_at(settings, split_key(args.key))
    if shown is None:
        raise NotDone(f"nothing sets {args.key!r}", "`app-server config get` shows what is set")
    if args.json:
        show_json(shown)
    elif not isinstance(shown, Mapping):
        show(_plain(shown))
    else:
        for key in sorted(read.origins):
            if args.key is None or key.startswith(f"{args.key}."):
                show(f"{key} = {json.dumps(value_at(settings, split_key(key)), ensure_ascii=False)}")


async def write_setting(server: AppServer, args: argparse.Namespace) -> None:
    """Write a setting, after a server was asked what it would think of it on the command line."""
    value = toml_value(args.value)
    try:
        json.dumps(value)
    except TypeError:
        raise InvalidCommandLine(f"no setting has a value like {args.value}") from None
    for text, event in await warnings_of(CliOverrides(settings=((args.key, args.value),))):
        if isinstance(event, ConfigWarningNotification) and event.path is None:
            what = text.replace(" is ignored", "")
            raise NotDone(what, "docs/configuration-reference.md has all settings")
    await _write(server, args.key, value)


async def remove_setting(server: AppServer, args: argparse.Namespace) -> None:
    await _write(server, args.key, None)


async def warnings_of(overrides: CliOverrides, home: Path | None = None) -> list[tuple[str, ServerEvent]]:
    """Return what a server of these settings warns of. Raises AppServerError where no thread could begin with them."""
    warnings: list[tuple[str, ServerEvent]] = []
    async with one_server(overrides, lambda *warning: warnings.append(warning), home) as server:
        await server.request(wire.CONFIG_READ, wire.ConfigReadParams())
    return warnings


async def _write(server: AppServer, key: str, value: Json) -> None:
    params = wire.ConfigValueWriteParams(key_path=key, value=value, merge_strategy="replace")
    written = await server.request(wire.CONFIG_VALUE_WRITE, params)
    say(f"{'removed' if value is None else 'wrote'} {key} in {written.file_path}")
    if written.overridden_metadata is not None:
        say(f"warning: {written.overridden_metadata.message}")


def _plain(value: Json) -> str:
    """Write a value as a script wants it: a text without quotes."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


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
    """Let the user edit the draft; show what a server warns of, or return why no thread could begin
    with it. Raises OSError where there is no editor."""
    editor = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi")
    before = signal.signal(signal.SIGINT, lambda *_: None)  # Ctrl-C is the editor's while it runs
    try:
        status = subprocess.run([*editor, str(draft)], check=False).returncode
    finally:
        signal.signal(signal.SIGINT, before)
    if status != 0:
        return f"the editor ended with exit status {status}"
    try:
        warnings = anyio.run(warnings_of, CliOverrides(), draft.parent)
    except AppServerError as error:
        return reason(error)
    for warning, _ in warnings:
        say(f"warning: {warning}")
    return None
