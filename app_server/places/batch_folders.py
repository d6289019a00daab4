"""The folders of batches that a home knows: links in it lead there, and the names of the links say what commands of
this home wrote into those folders.

A folder of a batch says with which settings and in which folder its tasks run, and holds their threads. Commands of no
session change it. A command of the user's that repeats neither settings nor folder believes them only where the home
knows them: the folder may come from another machine, or something may have changed it.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress

from app_server.places.private_folders import own_folder

LINKS = "thread_homes"
"""Links to other homes, of the threads of batches, lie there as well; their names have no dot."""
DIGITS = 32


def known_folders(home: str) -> list[str]:
    """Return the folders of batches that are there still."""
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
    """Note what a folder is about to say. Raises OSError."""
    link = os.path.join(own_folder(home, LINKS), _name(out, content))
    with suppress(FileExistsError):
        os.symlink(os.path.realpath(out), link)


def forget_others(home: str, out: str, content: bytes) -> None:
    """Forget what a folder said before. Raises OSError."""
    links, name = own_folder(home, LINKS), _name(out, content)
    for each in os.listdir(links):
        if each != name and each.startswith(name[: DIGITS + 1]):
            os.unlink(os.path.join(links, each))


def is_known(home: str, out: str, content: bytes) -> bool:
    """Return whether a folder says what a command of this home wrote there."""
    return os.path.islink(os.path.join(home, LINKS, _name(out, content)))


def _name(out: str, content: bytes) -> str:
    place = os.fsencode(os.path.realpath(out))
    return ".".join(hashlib.sha256(each).hexdigest()[:DIGITS] for each in (place, content))
