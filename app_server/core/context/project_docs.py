"""AGENTS.md: found in the home and from the repository's root down to the working directory.

Only regular files are read, and no more than the configured number of bytes of them together.
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
    for directory in _from_repository_root(cwd):
        text = _first(directory, names, left)
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


def _first(directory: Path, names: Sequence[str], max_bytes: int) -> str | None:
    for name in names:
        text = _read(directory / name, max_bytes)
        if text is not None:
            return text
    return None


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
