"""Carries out a previewed restore, so that a crash at any step loses nothing.

1. Conflicts are merged, if the user wants that: the agent's part is taken out where that is clean.
2. What the files are now is stored, then the restore with all its changes. The disk has both before the first write.
3. The files are changed one by one, each in one step.
4. What was done is stored. Without that line, the files themselves tell which changes were made.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from app_server.engine.checkpoints.history import Actor, FileVersion, State, Transition
from app_server.engine.checkpoints.kept_files import (
    CheckpointFolder,
    RestoreEndRecord,
    RestoreRecord,
    stored_paths,
    written,
)
from app_server.engine.checkpoints.plan import Action, PlannedFile, merged_content
from app_server.engine.checkpoints.preview import Preview, repositories_of
from app_server.engine.checkpoints.restore import Done, FileWriter, check_targets
from app_server.engine.support.rooted_fs import RootDir
from app_server.engine.support.worker_threads import run_in_thread
from app_server.engine.workspace.git.run_git import Git
from app_server.engine.workspace.git.snapshot import usual_bits
from app_server_protocol.values import replace


class Restored(Struct, frozen=True):
    """The result of a restore."""

    undo_id: str | None
    """Id of the restore, by which it can be undone; None if nothing was changed."""
    files: Sequence[PlannedFile]
    """The files as they were done: one that could not be changed is kept."""
    failed: Mapping[str, str]
    """Files that could not be changed, with the reasons."""
    nested: tuple[str, ...] = ()
    """Repositories in the working tree, which are left alone."""


async def carry_out(
    git: Git, folder: CheckpointFolder, preview: Preview, id: str, at: float, *, merges: bool
) -> Restored:
    """Restore the files. `id` is that of the restore. Raises RestoreRefused before anything is changed."""
    files, merged = list(preview.plan.files), dict[str, bytes]()
    if merges:
        files = [each for file in files if (each := await _merged(git, file, preview, merged)) is not None]
    nested = tuple(dict.fromkeys(name for span in preview.spans for name in span.nested))
    writes = [each for each in files if each.writes]
    targets = [each.target.digest for each in writes if each.target is not None]
    contents = {**await preview.contents.read(targets), **merged}
    writes = [each for each in writes if each.target is None or each.target.digest in contents]
    if not writes:
        return Restored(None, files, {}, nested)
    sizes = {digest: len(content) for digest, content in contents.items()}
    await run_in_thread(check_targets, writes, sizes)
    done = await run_in_thread(
        _write, git, folder, preview, RestoreRecord(id, at, preview.spans[0].id, []), writes, contents
    )
    result = [
        replace(each, action=Action.KEEP, target=each.present)
        if each.writes and each.path not in done.changed
        else each
        for each in files
    ]
    return Restored(id if done.changed else None, result, done.failed, nested)


def _write(
    git: Git,
    folder: CheckpointFolder,
    preview: Preview,
    begun: RestoreRecord,
    writes: Sequence[PlannedFile],
    contents: Mapping[str, bytes],
) -> Done:
    """Do steps 2 to 4. Blocks."""
    kept = _keep_present(git.home, folder, writes)
    writes = [each for each in writes if each.path in kept]
    begun.changes = written(
        Transition(each.path, Actor.AGENT, each.present, each.target, each.private) for each in writes
    )
    folder.append(begun, durable=True)
    with git.scratch_folder() as scratch:
        usual = usual_bits(Path(scratch)).st_mode
    roots = list(dict.fromkeys(span.root for span in preview.recorded.spans if span.root))
    repositories = repositories_of(preview.recorded.spans).values()
    asides = dict.fromkeys([folder.objects, *(each.objects_dir for each in repositories)])
    done = FileWriter(git.home, usual, roots, list(asides)).carry_out(writes, contents)
    folder.append(RestoreEndRecord(begun.id, stored_paths(sorted(done.changed))), durable=True)
    return done


def _keep_present(home: Path, folder: CheckpointFolder, writes: Sequence[PlannedFile]) -> set[str]:
    """Store what the files are now. Return the paths of those that are as the plan has seen them."""
    kept: set[str] = set()
    with RootDir("/", home) as disk:
        for each in writes:
            if each.present is None:
                kept.add(each.path)
                continue
            content = _content(disk, each.path, each.present)
            sha256 = len(each.present.digest) == 64
            if content is not None and folder.put([content], sha256=sha256) == [each.present.digest]:
                kept.add(each.path)
    return kept


async def _merged(
    git: Git, file: PlannedFile, preview: Preview, merged: dict[str, bytes]
) -> PlannedFile | None:
    """Return a file in conflict as restored to what is left without the agent's part, where that is clean; None if that
    is what the file is already. Adds the content to `merged`. Other files are returned as they are.
    """
    if file.action is not Action.CONFLICT:
        return file
    target = await _without_agent(git, file, preview, merged)
    if target is None:
        return file
    return None if target == file.present else replace(file, action=Action.RESTORE, target=target)


async def _without_agent(
    git: Git, file: PlannedFile, preview: Preview, merged: dict[str, bytes]
) -> FileVersion | None:
    """Return the state of a file without the agent's part; None if there is no clean one."""
    states = [
        state for state in (file.base, *(each for edit in file.edits for each in edit)) if state is not None
    ]
    contents = await preview.contents.read(await preview.contents.find(each.digest for each in states))
    if file.present is not None and file.present.digest not in contents:
        now = await run_in_thread(present_content, git.home, file.path, file.present)
        if now is not None:
            contents[file.present.digest] = now
    if file.base is None or any(each.digest not in contents for each in states):
        return None
    merged_file = merged_content(file, contents)
    if merged_file is None:
        return None
    text, mode = merged_file
    digest = preview.contents.digest_of(text, like=file.base.digest)
    merged[digest] = text
    return FileVersion(digest, mode)


def present_content(home: Path, path: str, state: State) -> bytes | None:
    """Return the present content of a file; None if it cannot be read. Blocks."""
    with RootDir("/", home) as disk:
        return _content(disk, path, state)


def _content(disk: RootDir, path: str, state: State) -> bytes | None:
    """Return the content of a file or the target of a link; None if it cannot be read."""
    name = os.fsencode(path)
    try:
        if state is not None and state.is_link:
            return disk.read_link(name)
        with disk.opened(name) as (descriptor, _):
            pieces = []
            while piece := os.read(descriptor, 1 << 20):
                pieces.append(piece)
            return b"".join(pieces)
    except OSError:
        return None
