"""Previews of restores: reads what was recorded, looks at the present files, and plans.

What the user has committed since the agent's change is the user's: the commits that were checked out at the end of one
turn and at the begin of the next are compared. What differs, no turn has committed.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from msgspec import Struct

from app_server.engine.checkpoints.attribution import Adopted, attributions, nobody_adopted
from app_server.engine.checkpoints.contents import Contents
from app_server.engine.checkpoints.history import RecordedChanges, Span
from app_server.engine.checkpoints.kept_files import CheckpointFolder
from app_server.engine.checkpoints.plan import Action, RestorePlan, make_plan
from app_server.engine.checkpoints.restore import present_states
from app_server.engine.support.engine_errors import GitError
from app_server.engine.support.worker_threads import run_in_thread
from app_server.engine.workspace.git.repository import Repository, find_repository, read_head
from app_server.engine.workspace.git.run_git import Git
from app_server_protocol.values import replace


class Preview(Struct, frozen=True):
    """The plan of a restore, and the contents that it can read."""

    plan: RestorePlan
    contents: Contents
    recorded: RecordedChanges
    since: int
    """Index of the span before which the files are to be."""

    @property
    def spans(self) -> Sequence[Span]:
        """The spans whose changes are taken back."""
        return self.recorded.spans[self.since :]


async def make_preview(
    git: Git, folder: CheckpointFolder, recorded: RecordedChanges, since: int, *, uncertain: bool
) -> Preview:
    """Plan a restore to the time before a span. Raises RestoreRefused."""
    spans = recorded.spans[since:]
    long = {
        change.path
        for span in spans
        for change in span.changes
        if any(len(state.digest) == 64 for state in (change.before, change.after) if state is not None)
    }
    present = await run_in_thread(present_states, git.home, recorded.paths_since(since), long.__contains__)
    repositories = await run_in_thread(repositories_of, recorded.spans)
    adopted = await _adopted(git, recorded, since, repositories)
    found = attributions(recorded, since, present, adopted)
    plan = make_plan(folder.thread, recorded.spans[since].id, found, uncertain=uncertain)
    contents = Contents(folder, git, list(repositories.values()))
    targets = [each.target.digest for each in plan.files if each.writes and each.target is not None]
    available = await contents.find(targets)
    files = [
        replace(each, action=Action.UNAVAILABLE, target=each.present)
        if each.writes and each.target is not None and each.target.digest not in available
        else each
        for each in plan.files
    ]
    return Preview(RestorePlan(files, plan.token), contents, recorded, since)


def repositories_of(spans: Sequence[Span]) -> dict[str, Repository]:
    """Return the repositories in which turns ran, by the folder of the turn."""
    found: dict[str, Repository] = {}
    for root in dict.fromkeys(span.root for span in spans if span.root):
        repository = find_repository(Path(root))
        if repository is not None:
            found[root] = repository
    return found


async def _adopted(
    git: Git, recorded: RecordedChanges, since: int, repositories: dict[str, Repository]
) -> Adopted:
    changed: list[tuple[int, frozenset[str] | None]] = []
    for repository in dict.fromkeys(repositories.values()):
        turns = [
            (at, span)
            for at, span in enumerate(recorded.spans)
            if at >= since and span.target is None and repositories.get(span.root) == repository
        ]
        heads = [(at, span.end_head, following.head) for (at, span), (_, following) in pairwise(turns)]
        if turns:
            present = await run_in_thread(read_head, repository)
            heads.append((turns[-1][0], turns[-1][1].end_head, present.commit))
        for at, then, now in heads:
            if then != now:
                changed.append((at, await _committed_between(git, repository, then, now)))
    if not changed:
        return nobody_adopted

    def adopted(path: str, first: int) -> bool:
        return any(first <= at and (paths is None or path in paths) for at, paths in changed)

    return adopted


async def _committed_between(
    git: Git, repository: Repository, then: str | None, now: str | None
) -> frozenset[str] | None:
    """Return the paths whose content differs between two commits; None if that is not known any more."""
    try:
        empty = await git.text(repository, ["hash-object", "-t", "tree", "--stdin"])
        names = ("-r", "-z", "--name-only", "--no-renames", "--no-ext-diff", "--no-textconv")
        output = await git.output(repository, ["diff-tree", *names, then or empty, now or empty])
    except GitError:
        return None
    root = str(repository.root).rstrip("/") + "/"
    return frozenset(root + os.fsdecode(name) for name in output.split(b"\0") if name)
