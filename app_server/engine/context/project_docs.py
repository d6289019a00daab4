"""Finds and reads AGENTS.md files: in the home, and from the repository's root down to the working directory.

It reads only regular files, up to the configured total size. It does not follow links out of the repository: otherwise
the repository's author, or a command, would choose which of the user's files the model receives. Links in the home are
the user's own; a link that leads into a folder that commands may change is followed no further. Files are read only if
they belong to this user or root: see `project_of`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from msgspec import Struct

from app_server.engine.config.config_values import Config
from app_server.engine.config.file_rules import MayRead, reads_all, rules_of
from app_server.engine.support.real_path import real_path
from app_server.engine.support.rooted_fs import RefusedName, RootDir
from app_server.engine.support.text_of_bytes import text_of_bytes
from app_server.engine.workspace.git import safe_directories
from app_server.engine.workspace.git.repository import OnRefusal, belongs_to_another, project_of
from app_server_protocol.policy import PermissionProfile, changeable_folders

log = logging.getLogger(__name__)

NAMES = ("AGENTS.override.md", "AGENTS.md")
"""File names of documents. The first existing name in each directory counts; configured fallback names follow these."""

SEPARATOR = "\n\n--- project-doc ---\n\n"
HOME_MAX_BYTES = 1 << 20


class _Readable(Struct, frozen=True):
    """Names of documents that commands may read."""

    names: Sequence[str]
    may_read: MayRead

    def in_folder(self, folder: Path) -> Sequence[str]:
        return [name for name in self.names if self.may_read(real_path(folder / name))]


class _Document(Struct, frozen=True):
    path: Path
    text: str


class _Owners(Struct, frozen=True):
    """The owners whose files are read, and the receiver of refusals."""

    other: int | None
    """Owner of a safe repository; None if there is none."""
    on_refusal: OnRefusal


def find_instructions(
    home: Path,
    cwd: Path,
    max_bytes: int,
    fallback_names: Sequence[str] = (),
    on_refusal: OnRefusal = log.warning,
    sources: list[str] | None = None,
    changeable: Sequence[str] = (),
    environment: Mapping[str, str] = MappingProxyType({}),
    may_read: MayRead = reads_all,
) -> str | None:
    """Return the text of all documents; None if there are none. The paths of the files are added to `sources`.

    `changeable` are folders where commands may change links; `environment` is the user's. Of the project's documents,
    only those are read that commands may read, by their real paths.
    """
    found = [] if sources is None else sources
    with RootDir("/", home, changeable) as disk:
        own = _first(disk, home, NAMES, HOME_MAX_BYTES)
    if own is not None and own.text.strip():
        found.append(str(own.path))
    readable = _Readable((*NAMES, *fallback_names), may_read)
    project = _project_docs(home, cwd, max_bytes, readable, on_refusal, environment)
    found += [str(document.path) for document in project]
    texts = (own.text.strip() if own else "", "\n\n".join(document.text for document in project))
    return SEPARATOR.join(text for text in texts if text) or None


def configured_instructions(
    config: Config,
    environment: Mapping[str, str],
    on_refusal: OnRefusal = log.warning,
    sources: list[str] | None = None,
) -> str | None:
    """Return the text of all documents, found by the settings of a conversation; None if there are none."""
    settings = config.instructions
    return find_instructions(
        config.home,
        config.cwd,
        settings.project_doc_max_bytes,
        settings.project_doc_fallback_filenames,
        on_refusal,
        sources,
        changeable_folders(str(config.cwd), config.thread.sandbox_policy),
        environment,
        _readable(config),
    )


def _readable(config: Config) -> MayRead:
    """Return the predicate whether commands of the conversation may read a real path."""
    policy = config.thread.sandbox_policy
    if not isinstance(policy, PermissionProfile):
        return reads_all
    return rules_of(
        policy, str(config.cwd), tmpdir=None, real=lambda name, access: (real_path(name),)
    ).may_read


def _project_docs(
    home: Path,
    cwd: Path,
    max_bytes: int,
    names: _Readable,
    on_refusal: OnRefusal,
    environment: Mapping[str, str],
) -> list[_Document]:
    if max_bytes <= 0:
        return []
    left, parts = max_bytes, list[_Document]()
    project = project_of(
        cwd,
        "instructions",
        on_refusal,
        lambda folder: safe_directories.is_safe_directory(folder, environment),
    )
    try:
        with RootDir(project.folders[0], home) as repository:
            for folder in project.folders:
                owners = _Owners(project.owner, on_refusal)
                found = _first(repository, folder, names.in_folder(folder), left, owners)
                if found and found.text.strip():
                    parts.append(found)
                    left -= len(found.text.encode("utf-8", "replace"))
                    if left <= 0:
                        break
    except OSError as error:  # the folder is gone, or has become a link
        log.warning("no instructions are read in %s: %s", cwd, error)
    return parts


def _first(
    root: RootDir, folder: Path, names: Sequence[str], max_bytes: int, owners: _Owners | None = None
) -> _Document | None:
    for path in (folder / name for name in names):
        text = _read(root, path, max_bytes, owners)
        if text is not None:
            return _Document(path, text)
    return None


def _read(root: RootDir, path: Path, max_bytes: int, owners: _Owners | None) -> str | None:
    """Return the text of a file; None if it may not or cannot be read. With `owners`, read only files of these
    owners.
    """
    name = os.path.relpath(os.fsencode(path), root.root)
    try:
        if owners is not None and belongs_to_another(root.stat(name), owners.other):
            owners.on_refusal(f"{path} belongs to another user and is not read.")
            return None
        with root.opened(name, follow_links=True) as (descriptor, status):
            if owners is not None and belongs_to_another(status, owners.other):
                owners.on_refusal(f"{path} leads to a file of another user and is not read.")
                return None
            if status.st_size > max_bytes:
                log.warning(
                    "%s is longer than the %d bytes left for instructions; the rest is not sent",
                    path,
                    max_bytes,
                )
            return text_of_bytes(os.read(descriptor, max_bytes), errors="replace")
    except RefusedName as refused:
        log.warning("%s is not read: %s", path, refused.strerror)
    except OSError:
        pass
    return None
