"""AGENTS.md: found in the home and from the repository's root down to the working directory.

Only regular files are read, and no more than the configured number of bytes of them together. A link in a
repository that leads out of it is not followed: whoever wrote the repository would choose what the model is sent.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Sequence
from pathlib import Path

log = logging.getLogger(__name__)

NAMES = ("AGENTS.override.md", "AGENTS.md")
"""In each directory the first of these that exists is taken; configured fallback names come after."""

SEPARATOR = "\n\n--- project-doc ---\n\n"
HOME_MAX_BYTES = 1 << 20


def find_instructions(
    home: Path, cwd: Path, max_bytes: int, fallback_names: Sequence[str] = ()
) -> str | None:
    """The whole text to send, or None where there is nothing to say."""
    own = _first(home, NAMES, HOME_MAX_BYTES)
    own = own.strip() if own else None
    project = _project_docs(cwd, max_bytes, (*NAMES, *fallback_names))
    if own and project:
        return own + SEPARATOR + project
    return own or project or None


def _project_docs(cwd: Path, max_bytes: int, names: Sequence[str]) -> str | None:
    if max_bytes <= 0:
        return None
    left, parts = max_bytes, []
    chain = _from_repository_root(cwd)
    inside = os.path.realpath(chain[0])
    for directory in chain:
        text = _first(directory, names, left, inside)
        if text and text.strip():
            parts.append(text)
            left -= len(text.encode("utf-8", "replace"))
            if left <= 0:
                break
    return "\n\n".join(parts) or None


def _from_repository_root(cwd: Path) -> list[Path]:
    """The repository's root down to `cwd`; `cwd` alone outside a repository."""
    chain = [cwd]
    for directory in (cwd, *cwd.parents):
        if directory != cwd:
            chain.append(directory)
        if (directory / ".git").exists():
            return chain[::-1]
    return [cwd]


def _first(directory: Path, names: Sequence[str], max_bytes: int, inside: str | None = None) -> str | None:
    for name in names:
        path = directory / name
        if inside is not None and _leads_out(path, inside):
            log.warning("%s is a link out of %s and is not read", path, inside)
            continue
        text = _read(path, max_bytes)
        if text is not None:
            return text
    return None


def _leads_out(path: Path, root: str) -> bool:
    return path.is_symlink() and not Path(os.path.realpath(path)).is_relative_to(root)


def _read(path: Path, max_bytes: int) -> str | None:
    """None where there is no such file. O_NONBLOCK: a FIFO of that name must not stop the server."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        facts = os.fstat(fd)
        if not stat.S_ISREG(facts.st_mode):
            return None
        if facts.st_size > max_bytes:
            log.warning(
                "%s is longer than the %d bytes left for instructions; the rest is not sent", path, max_bytes
            )
        return os.read(fd, max_bytes).decode("utf-8", "replace")
    except OSError:
        return None
    finally:
        os.close(fd)
