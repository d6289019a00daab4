"""Plans a restore: what is done with each file that the agent has changed since a message. Pure.

Rules, in this order:

1. A file that is as it was is not listed.
2. A change that may be somebody else's is kept, unless the user has agreed to restore uncertain ones.
3. What the user has changed or committed after the agent is kept. A merge takes out the agent's part, if that is clean.
4. Where a moved file is kept, so is its content in the new place.
5. Everything else goes back to the state before the agent's first change.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

from msgspec import Struct

from app_server.engine.checkpoints.attribution import Attribution, By
from app_server.engine.checkpoints.history import State
from app_server.engine.checkpoints.merge import without_agents_part
from app_server_protocol.values import replace


class Action(StrEnum):
    """Action of a restore on one file."""

    RESTORE = "restore"
    DELETE = "delete"
    RECREATE = "recreate"
    KEEP = "keep"
    CONFLICT = "conflict"
    UNAVAILABLE = "unavailable"


WRITES = frozenset({Action.RESTORE, Action.DELETE, Action.RECREATE})


class PlannedFile(Struct, frozen=True, kw_only=True):
    """One file of a plan."""

    path: str
    action: Action
    by: By
    present: State
    target: State
    """State that the file is to have; the present one if it is kept."""
    edits: tuple[tuple[State, State], ...] = ()
    """Changes of the user, for a merge."""
    base: State = None
    """State before the agent's first change."""
    private: bool = False

    @property
    def writes(self) -> bool:
        return self.action in WRITES


class RestorePlan(Struct, frozen=True):
    """All files of a plan, by path, and the token of the states that it was made from."""

    files: Sequence[PlannedFile]
    token: str


def make_plan(thread: str, before: str, found: Iterable[Attribution], *, uncertain: bool) -> RestorePlan:
    """Make the plan of a restore to the time before a span. `uncertain`: uncertain changes are restored, too.

    The token does not depend on `uncertain`: a client shows one preview, and then asks whether these are meant.
    """
    seen = hashlib.sha256(f"{thread}\0{before}".encode())
    files = []
    found = list(found)
    for each in found:
        seen.update(
            repr((each.path, each.base, each.present, each.edits, each.adopted)).encode("utf-8", "replace")
        )
        if each.base != each.present:
            files.append(_planned(each, uncertain=uncertain))
    return RestorePlan(_with_moved(files, found, uncertain=uncertain), seen.hexdigest()[:32])


def _with_moved(
    files: list[PlannedFile], attributed: Sequence[Attribution], *, uncertain: bool
) -> list[PlannedFile]:
    """Keep each file to which the agent has moved the content of another one that is kept: it may have the user's."""
    found = {each.path: each for each in attributed}
    users = {
        each.path for each in attributed if each.edits or each.adopted or (each.uncertain and not uncertain)
    }
    while True:
        written = {each.path for each in files if each.writes}
        places = (users | {each.path for each in files}) - written
        kept = [found[path] for path in places]
        contents = {digest for each in kept for digest in each.removed}
        moved = {
            each.path
            for each in files
            if each.action is not Action.KEEP
            and (found[each.path].origins & places or found[each.path].received & contents)
        }
        if not moved:
            return files
        files = [
            replace(each, action=Action.KEEP, target=each.present) if each.path in moved else each
            for each in files
        ]


def _planned(file: Attribution, *, uncertain: bool) -> PlannedFile:
    action = _action(file, uncertain=uncertain)
    return PlannedFile(
        path=file.path,
        action=action,
        by=file.by,
        present=file.present,
        target=file.base if action in WRITES else file.present,
        edits=file.edits,
        base=file.base,
        private=file.private,
    )


def _action(file: Attribution, *, uncertain: bool) -> Action:
    if _is_of_git(file.path) or (file.uncertain and not uncertain):
        return Action.KEEP
    if file.adopted:
        return Action.KEEP
    if file.edits:
        return Action.CONFLICT if _may_merge(file) else Action.KEEP
    if file.present is None:
        return Action.RECREATE
    return Action.DELETE if file.base is None else Action.RESTORE


def _may_merge(file: Attribution) -> bool:
    """Return whether all states are plain files. A file that the agent made and the user edited is kept."""
    states = [file.base, file.present, *(state for edit in file.edits for state in edit)]
    return all(state is not None and not state.is_link for state in states)


def merged_content(file: PlannedFile, contents: Mapping[str, bytes]) -> tuple[bytes, int] | None:
    """Return content and mode of a file in conflict without the agent's part; None if there is no clean result.
    `contents` has the contents of its states by their digests.
    """
    if file.base is None:
        return None
    mode, edits = file.base.mode, []
    for before, after in file.edits:
        if before is None or after is None:
            return None
        edits.append((contents[before.digest], contents[after.digest]))
        mode = after.mode if after.mode != before.mode else mode
    text = without_agents_part(contents[file.base.digest], edits)
    return None if text is None else (text, mode)


def _is_of_git(path: str) -> bool:
    return ".git" in path.lower().split("/")
