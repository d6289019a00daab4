"""Finds and reads AGENTS.md files: in the home, and from the repository's root down to the working directory.

It reads only regular files, up to the configured total size. It does not follow links out of the repository: otherwise
the repository's author would choose which of the user's files the model receives.
Nor does it read what belongs to another user than this one and root: see `project_folders`.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Sequence
from pathlib import Path

from app_server.core.config.types import Config
from app_server.core.git.project_folders import (
    OnRefusal,
    belongs_to_another,
    is_strange,
    leads_out,
    project_folders,
)
from app_server.core.real_path import real_path
from protocol.records import dataclass

log = logging.getLogger(__name__)

NAMES = ("AGENTS.override.md", "AGENTS.md")
"""The first existing name in each directory counts; configured fallback names follow."""

SEPARATOR = "\n\n--- project-doc ---\n\n"
HOME_MAX_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class _Document:
    path: Path
    text: str


def find_instructions(
    home: Path,
    cwd: Path,
    max_bytes: int,
    fallback_names: Sequence[str] = (),
    on_refusal: OnRefusal = log.warning,
    sources: list[str] | None = None,
) -> str | None:
    """The text of all documents, or None without any. The files that it is of are added to `sources`."""
    found = [] if sources is None else sources
    own = _first(home, NAMES, HOME_MAX_BYTES)
    if own is not None and own.text.strip():
        found.append(str(own.path))
    project = _project_docs(cwd, max_bytes, (*NAMES, *fallback_names), on_refusal)
    found += [str(document.path) for document in project]
    texts = (own.text.strip() if own else "", "\n\n".join(document.text for document in project))
    return SEPARATOR.join(text for text in texts if text) or None


def configured_instructions(
    config: Config, on_refusal: OnRefusal = log.warning, sources: list[str] | None = None
) -> str | None:
    """The same with the settings of a conversation."""
    settings = config.instructions
    return find_instructions(
        config.home,
        config.cwd,
        settings.project_doc_max_bytes,
        settings.project_doc_fallback_filenames,
        on_refusal,
        sources,
    )


def _project_docs(cwd: Path, max_bytes: int, names: Sequence[str], on_refusal: OnRefusal) -> list[_Document]:
    if max_bytes <= 0:
        return []
    left, parts = max_bytes, list[_Document]()
    chain = project_folders(cwd, "instructions", on_refusal)
    inside = real_path(chain[0])
    for directory in chain:
        found = _first_in_project(directory, names, left, inside, on_refusal)
        if found and found.text.strip():
            parts.append(found)
            left -= len(found.text.encode("utf-8", "replace"))
            if left <= 0:
                break
    return parts


def _first(directory: Path, names: Sequence[str], max_bytes: int) -> _Document | None:
    for path in (directory / name for name in names):
        text = _read(path, max_bytes)
        if text is not None:
            return _Document(path, text)
    return None


def _first_in_project(
    directory: Path, names: Sequence[str], max_bytes: int, inside: str, on_refusal: OnRefusal
) -> _Document | None:
    for path in (directory / name for name in names):
        if leads_out(path, inside):
            log.warning("%s is a link out of %s and is not read", path, inside)
            continue
        if is_strange(path):
            on_refusal(f"{path} belongs to another user and is not read.")
            continue
        text = _read(path, max_bytes, on_refusal)
        if text is not None:
            return _Document(path, text)
    return None


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
        if on_refusal is not None and belongs_to_another(facts):
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
