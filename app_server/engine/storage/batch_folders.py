"""The registry of batch folders in a home. It consists of links to the folders; the names of the links record what
commands of this home wrote into them.

A batch folder stores the settings and the working directory of its tasks, and their threads. No command of a session
may change the registry. A user's command that repeats neither settings nor directory trusts those in the folder only if
the home has registered them: the folder may come from another machine, or something may have changed it.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress

from app_server.engine.support.private_folders import own_folder

LINKS = "thread_homes"
"""Name of the folder with the links. It also has links to other homes, of the threads of batches; their names have no
dot.
"""
DIGITS = 32


def known_folders(home: str) -> list[str]:
    """Return the registered batch folders that still exist."""
    links = os.path.join(home, LINKS)
    try:
        names = [name for name in os.listdir(links) if "." in name]
    except OSError:
        return []
    found: dict[str, None] = {}
    for name in names:
        with suppress(OSError):
            found[os.readlink(os.path.join(links, name))] = None
    return [folder for folder in found if os.path.isdir(folder)]


def note(home: str, out: str, content: bytes) -> None:
    """Register the content that a folder is about to get. Raises OSError."""
    link = os.path.join(own_folder(home, LINKS), _name(out, content))
    with suppress(FileExistsError):
        os.symlink(os.path.realpath(out), link)


def forget_others(home: str, out: str, content: bytes) -> None:
    """Remove the earlier content of a folder from the registry. Raises OSError."""
    links, name = own_folder(home, LINKS), _name(out, content)
    for each in os.listdir(links):
        if each != name and each.startswith(name[: DIGITS + 1]):
            os.unlink(os.path.join(links, each))


def is_known(home: str, out: str, content: bytes) -> bool:
    """Return whether a folder has the content that a command of this home wrote there."""
    return os.path.islink(os.path.join(home, LINKS, _name(out, content)))


def _name(out: str, content: bytes) -> str:
    place = os.fsencode(os.path.realpath(out))
    return ".".join(hashlib.sha256(each).hexdigest()[:DIGITS] for each in (place, content))
