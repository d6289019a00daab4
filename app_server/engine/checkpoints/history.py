"""The recorded changes of one thread, as values: states of files, transitions between them, and the spans of a thread
(its turns and its restores) in which they were made. Pure.

Only changes of the agent and of restores are recorded. A difference between the end of one transition and the begin of
the next one of the same file was made by somebody else: it is the user's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final

from msgspec import Struct

SYMLINK: Final = 0o120000


class FileVersion(Struct, frozen=True):
    """The content and kind of a file or link at one time."""

    digest: str
    """Object id of the content in git's form; of a link, of its target."""
    mode: int
    """Mode that git would store: a plain file, an executable one, or a link."""

    @property
    def is_link(self) -> bool:
        return self.mode == SYMLINK


State = FileVersion | None
"""State of a path; None if there is no file."""

Manifest = Mapping[str, FileVersion]
"""States of files by their absolute paths."""


class Actor(StrEnum):
    """The maker of a change."""

    AGENT = "agent"
    UNCERTAIN = "uncertain"
    """A command of the agent ran when the file was changed, but others may have changed it meanwhile."""
    USER = "user"


class Transition(Struct, frozen=True):
    """The change of one file. `path` is absolute and has no links."""

    path: str
    actor: Actor
    before: State
    after: State
    private: bool = False
    """Whether only the owner could read the file before."""
    origin: str | None = None
    """File from which a patch has moved this one; None if it has not."""


class Span(Struct):
    """A turn, or a restore, with the changes that it made, in their order."""

    id: str
    at: float
    """Begin, in seconds since 1970."""
    words: str = ""
    """Beginning of the user's message."""
    root: str = ""
    """Folder in which the commands of the turn ran, without links."""
    head: str | None = None
    """Commit that was checked out at the begin; None if there was none."""
    end_head: str | None = None
    """Commit that was checked out at the end."""
    changes: list[Transition] = []
    uncovered: tuple[str, ...] = ()
    """Reasons why some changes of commands were not recorded."""
    nested: tuple[str, ...] = ()
    """Repositories in the working tree, which are left alone."""
    target: str | None = None
    """Id of the span before which a restore has put the files; None for a turn."""
    finished: bool = True
    """Whether a restore has come to its end. The changes of an unfinished one may have been made or not."""


class RecordedChanges(Struct, frozen=True):
    """All spans of a thread, oldest first."""

    spans: Sequence[Span] = ()

    def index_of(self, id: str) -> int | None:
        """Return the index of a span; None if nothing was recorded for it."""
        return next((index for index, span in enumerate(self.spans) if span.id == id), None)

    def paths_since(self, index: int) -> list[str]:
        """Return the paths that the spans from this index on have changed, sorted."""
        return sorted({change.path for span in self.spans[index:] for change in span.changes})

    def undoable(self) -> list[Span]:
        """Return the turns with changes that no finished restore has taken back, newest first."""
        gone: set[int] = set()
        for at, span in enumerate(self.spans):
            if span.target is not None and span.finished:
                gone |= _undone(self.spans, at, gone)
        turns = [
            each
            for at, each in enumerate(self.spans)
            if each.target is None and each.changes and at not in gone
        ]
        return turns[::-1]

    def newest_restore(self) -> Span | None:
        """Return the newest restore that no later one has undone; None if there is none."""
        gone = {span.target for span in self.spans if span.target is not None and span.finished}
        restores = [span for span in self.spans if span.target is not None and span.changes]
        return restores[-1] if restores and restores[-1].id not in gone else None


def _undone(spans: Sequence[Span], at: int, gone: set[int]) -> set[int]:
    """Return the indices of the spans that the restore at this index has undone. The undo of a restore brings back the
    turns that it had undone: these are removed from `gone`.
    """
    target = next((index for index, span in enumerate(spans[:at]) if span.id == spans[at].target), None)
    if target is None:
        return set()
    if spans[target].target is not None:
        back = next((i for i, span in enumerate(spans[:target]) if span.id == spans[target].target), target)
        gone.difference_update(range(back, target))
    return {index for index in range(target, at) if index not in gone}


def differing(before: Manifest, after: Manifest) -> Iterable[str]:
    """Return the paths whose states differ, sorted."""
    return sorted(path for path in {*before, *after} if before.get(path) != after.get(path))
