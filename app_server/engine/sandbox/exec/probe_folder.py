"""The folder in which a probe of the sandbox tries to write.

It is in the server's home, where no confined command writes. In a folder for temporary files, a command of another
server could exchange it and so decide the result of the probe. The probe receives the identity of the folder that it
has to find at the path. A folder is made outside of the home only in two cases: the home cannot be written to, or a
probe that could do something forbidden is repeated.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator

from msgspec import Struct

from app_server.engine.support.private_folders import private_folder

KIND = "sandbox-probe"

ELSEWHERE = ("/var/tmp", None)
"""Parent folders outside of the home, in this order. None stands for the folder for temporary files."""


class ProbeFolder(Struct, frozen=True):
    """A folder that was just made for a probe."""

    path: str
    identity: str
    """Device and inode of the folder, in the format that the probe computes."""


@contextlib.contextmanager
def probe_folder(home: str, *, in_home: bool = True) -> Iterator[ProbeFolder]:
    """Make a folder for the block. Raises OSError if no folder can be made anywhere."""
    with contextlib.ExitStack() as folders:
        path = None
        if in_home:
            with contextlib.suppress(OSError):  # the home may be read-only
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
    with contextlib.suppress(OSError):  # a command has moved it: the folder there now is another one
        os.rmdir(path)
