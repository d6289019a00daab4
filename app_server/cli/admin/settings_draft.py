"""`app-server config edit`: opens a draft of `config.toml` in the user's editor. The draft replaces the file once
conversations can begin with it.

The draft is in a folder of the home, where no confined command writes. It is read once each time that the editor has
ended. The content that was read is checked and written.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import stat
import subprocess
import sys
from pathlib import Path

from app_server.cli.admin.one_shot import agreed, eprint, name_of, settings_place
from app_server.client.command_line import FAILED
from app_server.engine.config.config_values import CliOverrides
from app_server.engine.config.safe_file import UnreadableFileError, read_regular_file
from app_server.engine.config.settings_service import load_config
from app_server.engine.config.toml_file import CONFIG_FILE, MAX_BYTES
from app_server.engine.support.engine_errors import ConfigError
from app_server.engine.support.private_folders import private_folder, temporary_folder
from app_server.engine.support.rooted_fs import RootDir
from app_server.server.bootstrap.launch import server_home
from app_server.server.bootstrap.standard_streams import complain

NEW_FILE_MODE = 0o600


def run_edit(args: argparse.Namespace) -> int:
    home = server_home(os.environ)
    file = (home / CONFIG_FILE).resolve()  # settings that are stored elsewhere, by a link, stay there
    try:
        with private_folder(home, "config-edit") as folder:
            before = _read(file)
            draft = Path(folder, CONFIG_FILE)
            draft.write_bytes(before)
            after, problem = _edited(draft)
            while problem is not None and sys.stdin.isatty() and sys.stderr.isatty():
                complain(name_of(args), problem)
                if not agreed("Edit it again?"):
                    break
                after, problem = _edited(draft)
            if problem is None and _read(file) != before:
                problem = f"{file} was changed meanwhile"
            if problem is not None:
                complain(name_of(args), problem, f"nothing was changed; the draft is {_kept(home, after)}")
                return FAILED
        if after == before:
            eprint("nothing was changed")
            return 0
        _replace(file, after)
    except OSError as error:
        complain(name_of(args), f"{error.filename or file}: {error.strerror}", "nothing was changed")
        return FAILED
    eprint(f"wrote {file}")
    return 0


def _replace(file: Path, content: bytes) -> None:
    mode = stat.S_IMODE(file.stat().st_mode) if file.exists() else NEW_FILE_MODE
    with RootDir.named_by_user(file.parent) as place:
        place.replace(file.name, content, mode)


def _kept(home: Path, content: bytes) -> Path:
    """Keep a draft that cannot be used, and return its path."""
    path = Path(temporary_folder(home), f"config-{os.urandom(4).hex()}.toml")
    _replace(path, content)
    return path


def _edited(draft: Path) -> tuple[bytes, str | None]:
    """Let the user edit the draft. Return its content, and the reason why no thread could begin with it, or None. Print
    other warnings. Raises OSError if there is no editor.
    """
    editor = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi")
    before = signal.signal(signal.SIGINT, lambda *_: None)  # while the editor runs, Ctrl-C is for the editor
    try:
        status = subprocess.run([*editor, str(draft)], check=False).returncode
    finally:
        signal.signal(signal.SIGINT, before)
    content = _read(draft)
    if status != 0:
        return content, f"the editor ended with exit status {status}"
    try:
        notices = load_config(settings_place(CliOverrides()), content=content).notices
    except ConfigError as error:
        return content, str(error)
    for warning in notices.warnings:
        eprint(f"warning: {warning}")
    return content, None


def _read(file: Path) -> bytes:
    """Return the content of a file; nothing if it does not exist. Raises OSError."""
    try:
        return read_regular_file(file, MAX_BYTES) or b""
    except UnreadableFileError as error:
        raise OSError(0, str(error), str(file)) from None
