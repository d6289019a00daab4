"""The folder in which a probe of the sandbox tries to write.

It is in the server's home, where no confined command writes: in a folder for temporary files, a command of another
server could exchange it, and so decide what the probe finds. The probe is told which folder it has to find at the path.
Elsewhere a folder is made only where the home cannot be written to, and to try again what a probe could do.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator

from msgspec import Struct

from app_server.core.exec.shell_setup import own_folder

FOLDER_PREFIX = "sandbox-probe-"
ABANDONED_SECONDS = 60.0
"""Longer than any probe: a folder of this age was left by a server that was killed."""

ELSEWHERE = ("/var/tmp", None)
"""Folders outside of the home, in this order; None: the one for temporary files."""


class ProbeFolder(Struct, frozen=True):
    """A folder that was just made."""

    path: str
    identity: str
    """Its device and inode, as the probe writes them."""


@contextlib.contextmanager
def probe_folder(home: str, *, in_home: bool = True) -> Iterator[ProbeFolder]:
    """Make a folder, which is removed afterwards. Raises OSError where none can be made anywhere."""
    path = _made(home, in_home=in_home)
    try:
        status = os.lstat(path)
        yield ProbeFolder(path, f"{status.st_dev}:{status.st_ino}")
    finally:
        with contextlib.suppress(OSError):  # a command has moved it: what is there now is not ours
            os.rmdir(path)


def _made(home: str, *, in_home: bool) -> str:
    if in_home:
        with contextlib.suppress(OSError):  # it may be read-only
            parent = own_folder(home, "tmp")
            sweep(parent, time.time())
            return tempfile.mkdtemp(prefix=FOLDER_PREFIX, dir=parent)
    for parent in ELSEWHERE[:-1]:
        with contextlib.suppress(OSError):
            return os.path.realpath(tempfile.mkdtemp(prefix=FOLDER_PREFIX, dir=parent))
    return os.path.realpath(tempfile.mkdtemp(prefix=FOLDER_PREFIX, dir=ELSEWHERE[-1]))


def sweep(parent: str, now: float) -> None:
    """Remove the empty folders of killed servers."""
    with contextlib.suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            if entry.name.startswith(FOLDER_PREFIX) and entry.is_dir(follow_symlinks=False):
                with contextlib.suppress(OSError):  # somebody else's, or just gone
                    if entry.stat(follow_symlinks=False).st_mtime < now - ABANDONED_SECONDS:
                        os.rmdir(entry.path)
