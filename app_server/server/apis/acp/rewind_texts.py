"""The texts of `/rewind`: the messages, what is done with each file and why others are kept, what has left the
conversation. Pure.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from app_server.server.apis.acp.formatting import one_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from app_server.engine.checkpoints.plan import PlannedFile

MOST_LISTED: Final = 30
"""Maximum number of messages, and of files, that are listed."""


class RewindMessage(Struct, frozen=True):
    """A message of the user, with the number of files that its turn changed."""

    turn_id: str
    words: str
    files: int


def files_text(files: Sequence[PlannedFile], cwd: str, failed: Mapping[str, str]) -> str:
    """Return a line for each file. `failed`: reasons of files that could not be changed."""
    lines = []
    for each in files[:MOST_LISTED]:
        inside = each.path.startswith(cwd.rstrip("/") + "/")
        path = os.path.relpath(each.path, cwd) if inside else each.path
        lines.append(f"- {path.encode('utf-8', 'replace').decode()}: {_about(each, failed.get(each.path))}\n")
    if len(files) > MOST_LISTED:
        lines.append(f"- and {len(files) - MOST_LISTED} more\n")
    return "".join(lines)


def _about(file: PlannedFile, failure: str | None) -> str:
    if failure is not None:
        return f"kept ({failure})"
    if file.writes:
        unsure = " (it was changed while a command ran, by it or by you)" if file.by == "uncertain" else ""
        return f"{file.action.value}{unsure}"
    if file.action.value == "unavailable":
        return "kept (its old content is gone)"
    return f"kept ({'changed by you' if file.by in ('both', 'user') else 'it could not be changed'})"


def messages_text(messages: Sequence[RewindMessage]) -> str:
    rows = []
    for number, message in enumerate(messages[:MOST_LISTED], 1):
        files = f" ({count_of(message.files, 'file')})" if message.files else ""
        rows.append(f"{number}. {one_line(message.words) or '(no words)'}{files}\n")
    return "Go back to before a message with `/rewind NUMBER`:\n\n" + "".join(rows)


def left_text(messages: Sequence[RewindMessage]) -> str:
    """Return what has left the conversation."""
    words = one_line(messages[-1].words) or "(no words)"
    return (
        f"\n{count_of(len(messages), 'message')} left the conversation, with what followed. The model knows nothing of "
        f"{'it' if len(messages) == 1 else 'them'} any more, though your client may still show "
        f"{'it' if len(messages) == 1 else 'them'}. The first one was:\n\n> {words}\n"
    )


def count_of(number: int, of: str) -> str:
    return f"1 {of}" if number == 1 else f"{number} {of}s"
