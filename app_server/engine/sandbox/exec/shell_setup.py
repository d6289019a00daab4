"""Files for the shells of commands in the server's home, where no confined command may write.

Programs that the server adds to the PATH: `apply_patch`, which models call from scripts. They are small shell scripts
in a folder whose name is a hash of them, so that servers of different versions can share a home.

Recorded starts of login shells: a model runs each command with `bash -lc`, and a user's profile often takes longer than
the command. Once the same shell is used a second time, a separate run in the same sandbox records the environment,
functions and options that the profile sets. From then on the script runs in a plain shell that begins with the
recording. In any doubt, the login shell runs as the model requested.
"""

from __future__ import annotations

import hashlib
import logging
import os
import secrets
import shlex
import shutil
import stat
import sys
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from pathlib import Path

import anyio
import msgspec
from msgspec import Struct

from app_server.engine.config.safe_file import write_file_atomically
from app_server.engine.sandbox.exec.command import CommandSpec, ExecResult
from app_server.engine.support.engine_errors import SHORTAGES
from app_server.engine.support.helpers import IMPORT_FOLDERS, apply_patch_command
from app_server.engine.support.private_folders import FOLDER, own_folder
from app_server_protocol.values import replace


def install_file(place: str, content: bytes, mode: int) -> None:
    """Write the file unless it exists with that content and mode. Raises OSError."""
    if not _holds(place, content, mode):
        write_file_atomically(Path(place), content, mode)


def _holds(place: str, content: bytes, mode: int) -> bool:
    try:
        fd = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    with open(fd, "rb", closefd=True) as file:
        facts = os.fstat(fd)
        # A file of another user, left from when the folder was open to all, could still be changed by them.
        is_ours = facts.st_uid == os.geteuid() and facts.st_nlink == 1
        right = is_ours and stat.S_ISREG(facts.st_mode) and stat.S_IMODE(facts.st_mode) == mode
        return right and file.read(len(content) + 1) == content


log = logging.getLogger(__name__)

NAMES = ("apply_patch", "applypatch")


class Programs(Struct, eq=False):
    """The folder of the programs, which is created for the first command."""

    python: str
    home: str
    _folder: str | None = None
    _failed: bool = False

    def added_to(self, environment: Mapping[str, str]) -> Mapping[str, str]:
        """Return the environment with the server's programs first on its PATH. An environment without a PATH is
        returned unchanged, because the shell's default applies then.
        """
        path = environment.get("PATH")
        folder = self._ready() if path else None
        if folder is None:
            return environment
        return {**environment, "PATH": f"{folder}{os.pathsep}{path}"}

    def _ready(self) -> str | None:
        if self._folder is not None and all(_runs(f"{self._folder}/{name}") for name in NAMES):
            return self._folder
        if self._failed:
            return None
        try:
            self._folder = install(self.home, self.python)
        except OSError as error:
            # Commands still run: the server recognises most patches without the program.
            log.warning("no apply_patch for commands: %s", error)
            self._folder, self._failed = None, error.errno not in SHORTAGES
        return self._folder


def install(home: str, python: str) -> str:
    """Return the folder with the programs, creating it if needed. Raises OSError."""
    content = script(python).encode()
    folder = own_folder(home, FOLDER, _name_of(content))
    for name in NAMES:
        install_file(os.path.join(folder, name), content, 0o755)
    return folder


def _name_of(content: bytes) -> str:
    return f"programs-{hashlib.sha256(content).hexdigest()[:16]}"


@lru_cache(maxsize=8)
def program_folders(python: str, home: str) -> tuple[str, ...]:
    """Return the real folders that commands and the server's programs need besides the system's: the interpreter with
    its library, the server's packages, and the files for shells in the home.
    """
    interpreter = os.path.dirname(os.path.dirname(os.path.realpath(python)))
    for_shells = (
        os.path.join(home, FOLDER, name) for name in (_name_of(script(python).encode()), LOGIN_SHELLS)
    )
    folders = (sys.prefix, sys.base_prefix, interpreter, *IMPORT_FOLDERS, *for_shells)
    return tuple(dict.fromkeys(real for each in folders if (real := os.path.realpath(each)) != "/"))


def script(python: str) -> str:
    """Return the text of each of the programs."""
    return f'#!/bin/sh\nexec {shlex.join(apply_patch_command(python))} "$@"\n'


def _runs(place: str) -> bool:
    return os.access(place, os.X_OK)


FRESH_SECONDS = 300.0
"""Lifetime of a recording, in seconds. Then the profile is read again: the user may have changed it."""

RECORD_MS = 10_000
MAX_BYTES = 128 * 1024
"""Maximum size of a recorded start, in bytes. Restoring a larger one takes as long as running the profile."""

WAIT_SECONDS = 2.0
"""Timeout of a command's wait for a recording in progress, in seconds. It is no longer than the command's own profile
would take.
"""

MAX_KEPT = 32

NOT_TAKEN_OVER = frozenset({"_", "SHLVL", "PWD", "OLDPWD", "BASH_ENV"})
"""Names of variables that each shell sets for itself."""

RECORD = r"""
printf '\n%s\n' MARK; env -0 || exit; printf '\n%s\n' MARK; declare -f
for __name in $(compgen -v); do
  case $__name in
    BASH*|_|__name|DIRSTACK|EPOCH*|EUID|FUNCNAME|GROUPS|HISTCMD|LINENO|OPTERR|OPTIND|PIPESTATUS|PPID) continue ;;
    RANDOM|SECONDS|SHELLOPTS|SRANDOM|UID) continue ;;
  esac
  case ${!__name@a} in *x*|*r*) continue ;; esac
  declare -p "$__name"
done 2>/dev/null
shopt -p | while read -r __line; do case $__line in *login_shell*|*restricted_shell*) ;; *) echo "$__line" ;; esac; done
trap -p; alias -p; set +o; printf 'umask %s\n' "$(umask)"; printf '\n%s\n' MARK
"""
"""Script that writes the exported variables, then a script that restores the rest. MARK is replaced by a random
word.
"""

LOGIN_SHELLS = "login-shells"

Key = tuple[str, str, object, frozenset[tuple[str, str]]]


class Start(Struct, frozen=True):
    """The state with which a login shell begins: its environment, and a script."""

    env: Mapping[str, str]
    script: str
    """Path of a file that restores functions, options and variables that are not exported."""


class Known(Struct):
    """Known facts about one kind of login shell."""

    at: float
    start: Start | None = None
    recording: anyio.Event | None = None
    """Event that is set at the end of the recording. None if no recording has begun."""


class LoginShells(Struct, eq=False):
    """The recorded starts of login shells of one server."""

    home: str
    clock: Callable[[], float] = anyio.current_time
    _known: dict[Key, Known] = msgspec.field(default_factory=dict)
    """Known login shells; the one that was recorded last is at the end."""

    def taken_over(self, spec: CommandSpec) -> CommandSpec:
        """Return the command to run: unchanged, or without the profile."""
        key, known = self._find(spec)
        if key is None or known is None or known.start is None:
            return spec
        if self.clock() - known.at > FRESH_SECONDS or not os.access(known.start.script, os.R_OK):
            del self._known[key]
            return spec
        shell = shutil.which(spec.argv[0], path=spec.env.get("PATH", os.defpath))
        if shell is None:
            return spec
        # The file restores the shell's name, with which error messages begin.
        env = {**known.start.env, "BASH_ENV": known.start.script}
        return replace(spec, argv=(shell, "-c", spec.argv[2]), env=env)

    def used(self, spec: CommandSpec) -> bool:
        """Record the use of a command's shell. Return whether the start of its shell is to be recorded now."""
        key, known = self._find(spec)
        if key is None:
            return False
        if known is not None and self.clock() - known.at <= FRESH_SECONDS:
            if known.recording is not None:
                return False
            known.recording = anyio.Event()
            return True
        self._known.pop(key, None)
        self._known[key] = Known(self.clock())
        if len(self._known) > MAX_KEPT:
            del self._known[next(iter(self._known))]
        return False

    async def recorded(self, spec: CommandSpec) -> None:
        """Wait while the start of this shell is being recorded."""
        _, known = self._find(spec)
        if known is not None and known.recording is not None and not known.recording.is_set():
            with anyio.move_on_after(WAIT_SECONDS):
                await known.recording.wait()

    async def record(self, spec: CommandSpec, run: Callable[[CommandSpec], Awaitable[ExecResult]]) -> None:
        """Run the shell to record the effect of its profile. If `run` raises any exception, nothing is recorded."""
        _, known = self._find(spec)
        if known is None:
            return
        try:
            known.start = await self._start_of(spec, run)
        finally:
            if known.recording is not None:
                known.recording.set()

    def _find(self, spec: CommandSpec) -> tuple[Key | None, Known | None]:
        key = _key(spec)
        return key, None if key is None else self._known.get(key)

    async def _start_of(
        self, spec: CommandSpec, run: Callable[[CommandSpec], Awaitable[ExecResult]]
    ) -> Start | None:
        mark = secrets.token_hex(16)
        script = RECORD.replace("MARK", mark)
        result = await run(replace(spec, argv=(*spec.argv[:2], script), timeout_ms=RECORD_MS))
        parts = result.stdout.split(f"\n{mark}\n".encode())
        if result.exit_code != 0 or result.timed_out or len(parts) != 4 or len(result.stdout) > MAX_BYTES:
            return None
        env = _environment(parts[1], spec.env)
        name = spec.argv[0].encode(errors="surrogateescape")
        content = b"unset BASH_ENV\nBASH_ARGV0=" + _quoted(name) + b"\n" + parts[2]
        return Start(env, self._install(content))

    def _install(self, content: bytes) -> str:
        folder = own_folder(self.home, FOLDER, LOGIN_SHELLS)
        place = os.path.join(folder, f"{hashlib.sha256(content).hexdigest()[:32]}.bash")
        install_file(place, content, 0o600)
        return place


def _key(spec: CommandSpec) -> Key | None:
    """Return a key that is equal for commands whose login shells begin in the same way; None for any other command."""
    if len(spec.argv) != 3 or spec.argv[1] != "-lc" or os.path.basename(spec.argv[0]) != "bash":
        return None
    if "BASH_ENV" in spec.env or ("/" in spec.argv[0] and not os.path.isabs(spec.argv[0])):
        return None
    plan = spec.sandbox
    if plan is not None and plan.view.programs:  # it could not read the recording
        return None
    view = None if plan is None else (plan.view.visible, plan.view.hidden)
    return spec.argv[0], spec.cwd, view, frozenset(spec.env.items())


def _environment(listed: bytes, given: Mapping[str, str]) -> dict[str, str]:
    pairs = (
        os.fsdecode(entry).partition("=") for entry in listed.rstrip(b"\n").split(b"\0") if b"=" in entry
    )
    env = {name: value for name, _, value in pairs if name not in NOT_TAKEN_OVER}
    return env | {name: value for name, value in given.items() if name in NOT_TAKEN_OVER}


def _quoted(text: bytes) -> bytes:
    return b"'" + text.replace(b"'", b"'\\''") + b"'"
