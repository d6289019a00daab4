"""Cuts what hooks tell the model to its size. The whole of it stays in a file: a folder for each thread in `tmp` of the
home.

The files stay as long as the thread, since the stored conversation names them: they are removed when it is deleted, and
when a thread ends that is not stored. Beyond `MOST_FILES`, the oldest ones of all threads go. Writes the disk; blocks.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from app_server.engine.context.text_for_model import BYTES_PER_TOKEN, estimate_tokens
from app_server.engine.hooks.decision import HookContext
from app_server.engine.hooks.hook_definitions import DEFAULT_CONTEXT_TOKENS
from app_server.engine.support.private_folders import FOLDER, HOOK_CONTEXTS, own_folder, remove_own_folder

MOST_FILES: Final = 200
"""Maximum number of files of all threads of a home. The output of a hook, and so each file, has 1 MiB at most."""


def cut_context(context: HookContext, home: Path, thread: str) -> str:
    """Return the text for the model: all of it, or its begin and the path of the file with all of it."""
    limit = context.handler.definition.additional_context_limit
    tokens, text = DEFAULT_CONTEXT_TOKENS if limit is None else limit, context.text
    if estimate_tokens(text) <= tokens:
        return text
    head = text.encode("utf-8", "replace")[: tokens * BYTES_PER_TOKEN].decode("utf-8", "ignore")
    try:
        place = f"The whole text is in {write_context(home, thread, text)}."
    except OSError as error:
        place = f"The rest could not be written ({error.strerror or error})."
    return f"{head}\n[… cut after {tokens} tokens (`additionalContextLimit`). {place}]"


def write_context(home: Path, thread: str, text: str) -> str:
    """Write a text into a new file of a thread, and return its path. Raises OSError."""
    folder = own_folder(home, FOLDER, HOOK_CONTEXTS, thread)
    number, path = tempfile.mkstemp(suffix=".txt", dir=folder)
    with os.fdopen(number, "wb") as file:
        file.write(text.encode("utf-8", "replace"))
    _remove_oldest(os.path.dirname(folder))
    return path


def remove_contexts(home: Path, thread: str) -> None:
    """Remove the files of a thread, if there are any."""
    remove_own_folder(home, FOLDER, HOOK_CONTEXTS, thread)


def _remove_oldest(parent: str) -> None:
    found = sorted(_files(parent), reverse=True)
    for _, path in found[MOST_FILES:]:
        with suppress(OSError):  # another server of this home removes it, too
            os.unlink(path)
            os.rmdir(os.path.dirname(path))  # only if it was the last one


def _files(parent: str) -> Iterator[tuple[int, str]]:
    """Yield the time of the last change and the path of each file of all threads."""
    with os.scandir(parent) as threads:
        folders = [entry.path for entry in threads if entry.is_dir(follow_symlinks=False)]
    for folder in folders:
        with suppress(FileNotFoundError), os.scandir(folder) as files:
            for entry in files:
                with suppress(FileNotFoundError):
                    yield entry.stat(follow_symlinks=False).st_mtime_ns, entry.path
