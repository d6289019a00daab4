"""Finds and reads AGENTS.md files: in the home, and from the repository's root down to the working directory.

It reads only regular files, up to the configured total size. It does not follow links out of the repository: otherwise
the repository's author would choose which of the user's files the model receives.
As in git, `.git` must belong to the user or to root, and so must the documents and the links to them: otherwise anybody
could instruct the model through a shared folder such as /tmp. Write permissions do not count, because on some file
systems everybody has them.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path

log = logging.getLogger(__name__)

NAMES = ("AGENTS.override.md", "AGENTS.md")
"""The first existing name in each directory counts; configured fallback names follow."""

SEPARATOR = "\n\n--- project-doc ---\n\n"
HOME_MAX_BYTES = 1 << 20


OnRefusal = Callable[[str], None]
"""Receives a message for the user about each file that was not read."""


def find_instructions(
    home: Path,
    cwd: Path,
    max_bytes: int,
    fallback_names: Sequence[str] = (),
    on_refusal: OnRefusal = log.warning,
) -> str | None:
    """The text of all documents, or None without any."""
    own = _first(home, NAMES, HOME_MAX_BYTES)
    own = own.strip() if own else None
    project = _project_docs(cwd, max_bytes, (*NAMES, *fallback_names), on_refusal)
    if own and project:
        return own + SEPARATOR + project
    return own or project or None


def _project_docs(cwd: Path, max_bytes: int, names: Sequence[str], on_refusal: OnRefusal) -> str | None:
    if max_bytes <= 0:
        return None
    left, parts = max_bytes, []
    chain = _from_repository_root(cwd, on_refusal)
    inside = os.path.realpath(chain[0])
    for directory in chain:
        text = _first_in_project(directory, names, left, inside, on_refusal)
        if text and text.strip():
            parts.append(text)
            left -= len(text.encode("utf-8", "replace"))
            if left <= 0:
                break
    return "\n\n".join(parts) or None


def _from_repository_root(cwd: Path, on_refusal: OnRefusal) -> list[Path]:
    """The directories from the repository's root to `cwd`; only `cwd` outside a repository, or in another user's."""
    chain = [cwd]
    for directory in (cwd, *cwd.parents):
        if directory != cwd:
            chain.append(directory)
        marker = directory / ".git"
        if marker.exists():
            if not _is_strange(marker):
                return chain[::-1]
            on_refusal(f"{marker} belongs to another user: instructions above {cwd} are not looked for.")
            break
    return [cwd]


def _first(directory: Path, names: Sequence[str], max_bytes: int) -> str | None:
    texts = (_read(directory / name, max_bytes) for name in names)
    return next((text for text in texts if text is not None), None)


def _first_in_project(
    directory: Path, names: Sequence[str], max_bytes: int, inside: str, on_refusal: OnRefusal
) -> str | None:
    for path in (directory / name for name in names):
        if _leads_out(path, inside):
            log.warning("%s is a link out of %s and is not read", path, inside)
            continue
        if _is_strange(path):
            on_refusal(f"{path} belongs to another user and is not read.")
            continue
        text = _read(path, max_bytes, on_refusal)
        if text is not None:
            return text
    return None


def _is_strange(path: Path) -> bool:
    """Whether the entry itself, not the target of a link, belongs to another user than this one and root."""
    try:
        return _belongs_to_another(os.lstat(path))
    except OSError:
        return False


def _belongs_to_another(facts: os.stat_result) -> bool:
    return facts.st_uid not in (os.geteuid(), 0)


def _leads_out(path: Path, root: str) -> bool:
    return path.is_symlink() and not Path(os.path.realpath(path)).is_relative_to(root)


def _read(path: Path, max_bytes: int, on_refusal: OnRefusal | None = None) -> str | None:
    """None if the file does not exist, or if `on_refusal` is given and the file belongs to another user. With
    O_NONBLOCK, a FIFO does not block the server.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        facts = os.fstat(fd)
        if not stat.S_ISREG(facts.st_mode):
            return None
        if on_refusal is not None and _belongs_to_another(facts):
            on_refusal(f"{path} leads to a file of another user and is not read.")
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
