"""The folder in which a probe of the sandbox tries to write.

It is in the server's home, where no confined command writes: in a folder for temporary files, a command of another
server could exchange it, and so decide what the probe finds. The probe is told which folder it has to find at the path.
Elsewhere a folder is made only where the home cannot be written to, and to try again what a probe could do.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator

from msgspec import Struct

from app_server.places.private_folders import private_folder

KIND = "sandbox-probe"

ELSEWHERE = ("/var/tmp", None)
"""Folders outside of the home, in this order; None: the one for temporary files."""


class ProbeFolder(Struct, frozen=True):
    """A folder that was just made."""

    path: str
    identity: str
    """Its device and inode, as the probe writes them."""


@contextlib.contextmanager
def probe_folder(home: str, *, in_home: bool = True) -> Iterator[ProbeFolder]:
    """Make a folder for the block. Raises OSError where none can be made anywhere."""
    with contextlib.ExitStack() as folders:
        path = None
        if in_home:
            with contextlib.suppress(OSError):  # it may be read-only
                path = folders.enter_context(private_folder(home, KIND))
        if path is None:
            path = _elsewhere()
            folders.callback(_remove, path)
        status = os.lstat(path)
        yield ProbeFolder(path, f"{status.st_dev}:{status.st_ino}")


def _elsewhere() -> str:
    *others, last = ELSEWHERE
    for parent in others:
        with contextlib.suppress(OSError):
            return os.path.realpath(tempfile.mkdtemp(prefix=f"{KIND}-", dir=parent))
    return os.path.realpath(tempfile.mkdtemp(prefix=f"{KIND}-", dir=last))


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):  # a command has moved it: what is there now is not ours
        os.rmdir(path)
