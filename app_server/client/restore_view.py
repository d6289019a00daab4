"""Texts about restores for people: what happens to which file, in one line each and in one sentence. Pure."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from app_server_protocol.v2.checkpoints import ThreadCheckpointFile

DONE: Final[Mapping[str, str]] = {"restore": "restored", "recreate": "restored", "delete": "deleted"}
_KEPT: Final[Mapping[str, str]] = {
    "user": "changed by you",
    "both": "changed by you",
    "uncertain": "changed while a command ran",
    "agent": "could not be changed",
}


def restore_summary(files: Iterable[ThreadCheckpointFile]) -> str:
    """Return one sentence: `3 files restored, 1 kept (changed by you)`."""
    counts = Counter(map(_group, files))
    if not counts:
        return "no file changes"
    said: list[str] = []
    for group in ("restored", "deleted", *sorted(counts)):
        if count := counts.pop(group, 0):
            unit = "" if said else " file" if count == 1 else " files"
            said.append(f"{count}{unit} {group}")
    return ", ".join(said)


def restore_lines(files: Iterable[ThreadCheckpointFile], cwd: str) -> Iterator[str]:
    """Yield a line for each file, with its path below the working directory."""
    for each in files:
        inside = each.path.startswith(cwd.rstrip("/") + "/")
        path = os.path.relpath(each.path, cwd) if inside else each.path
        reason = "" if each.reason is None else f": {each.reason}"
        yield f"{_group(each):<40} {path}{reason}"


def is_changed(file: ThreadCheckpointFile) -> bool:
    """Return whether a restore changes the file."""
    return file.action in DONE


def needs_consent(files: Iterable[ThreadCheckpointFile]) -> bool:
    """Return whether a file is kept only because its change may be the user's."""
    return any(each.action == "keep" and each.by == "uncertain" for each in files)


def _group(file: ThreadCheckpointFile) -> str:
    if file.action in DONE:
        return DONE[file.action]
    if file.action == "unavailable":
        return "kept (its old content is gone)"
    return f"kept ({_KEPT[file.by]})"
