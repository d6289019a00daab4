"""Writes a planned patch to the disk, completely or not at all. It is a program that reads a document on stdin.

It imports only the standard library and `write_steps`, so that it starts quickly and inside any sandbox. It writes with
the rights of its process. `apply_document` does the same within a process.

1. check: every file still has the content that the plan is based on, and is writable
2. stage: write new contents to temporary files beside their targets, and flush them
3. commit: give the old file a second name, and the temporary file its place, with one rename or link per file
4. undo: after any failure, revert the steps taken, by renames alone, which need no disk space

Paths in the document are resolved. The writer opens every component without following links, so a link that was created
after the plan is an error. A replaced file is a new file: a hard link elsewhere keeps the old content. With a journal
in the working directory, the next writer can undo the work of a killed one.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import stat
import sys

from app_server.engine.workspace.patch import write_steps

TYPE_CHECKING = False
if TYPE_CHECKING:  # not imported at run time: the import would take longer than everything else
    from collections.abc import Iterator
    from typing import TypedDict

    class EditDocument(TypedDict):
        """One file, as `planner` writes it. `old` is None if the file is new, `new` if it is removed, and `to_label`
        and `to_path` if it is not moved.
        """

        label: str
        path: str
        old: str | None
        new: str | None
        to_label: str | None
        to_path: str | None


NEW_FILE_MODE = 0o644
DENIED = (errno.EACCES, errno.EPERM, errno.EROFS)
UNINTERRUPTED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that are blocked while files are written."""


class WriteError(Exception):
    """The patch was not written, and all changes were undone."""


def apply_document(document: bytes) -> tuple[int, str, str]:
    """Write the patch in a document; return exit status, stdout and stderr."""
    plan = json.loads(document)
    folders = write_steps.OpenFolders()
    work = Writer(plan["token"], plan["cwd"], folders)
    try:
        with contextlib.ExitStack() as stack:
            stack.callback(folders.close)
            stack.callback(work.close)
            if plan["recover"]:
                write_steps.recover(folders, plan["cwd"])
            try:
                work.stage(plan["edits"])
                work.commit()
            except BaseException:
                work.undo()
                raise
            work.finish()
    except (OSError, WriteError) as error:
        return 1, "", f"{work.failure(error)}\n"
    lines = [f"{letter} {label}\n" for letter, label in plan["summary"]]
    return 0, "".join(["Success. Updated the following files:\n", *lines]), ""


class Writer:
    """The steps of one patch, and how to undo them."""

    def __init__(self, token: str, cwd: str, folders: write_steps.OpenFolders) -> None:
        self.token = token
        self.cwd = cwd
        self.folders = folders
        self.steps: list[write_steps.WriteStep] = []
        self.journal: write_steps.PatchJournal | None = None
        self.several = False
        self.stuck: list[str] = []
        self.doing = "Failed to write files"

    def failure(self, error: Exception) -> str:
        """Return the error message. It omits the reason if rights are missing: clients and models know this wording of
        the tool.
        """
        reason = ""
        if isinstance(error, WriteError):
            reason = f": {error}"
        elif isinstance(error, OSError) and error.errno is not None and error.errno not in DENIED:
            reason = f": {os.strerror(error.errno)} (os error {error.errno})"
        return "\n".join([self.doing + reason, *self.stuck])

    # -- stage ----------------------------------------------------------------------------------

    def stage(self, edits: list[EditDocument]) -> None:
        self.several = len(edits) > 1 or any(edit["to_path"] for edit in edits)
        if self.several:
            self.open_journal(edits)
        for edit in edits:
            old = None if edit["old"] is None else edit["old"].encode("utf-8", "surrogateescape")
            new = None if edit["new"] is None else edit["new"].encode("utf-8", "surrogateescape")
            if edit["to_path"] and edit["to_label"] is not None:
                self.doing = f"Failed to read file to update {edit['label']}"
                with self.checked(edit["path"], old, os.O_RDONLY) as source:
                    self.stage_file(edit["to_label"], edit["to_path"], None, new, source)
                self.stage_file(edit["label"], edit["path"], old, None)
            else:
                self.stage_file(edit["label"], edit["path"], old, new)

    def stage_file(
        self, label: str, path: str, old: bytes | None, new: bytes | None, like: int | None = None
    ) -> None:
        """Stage the change of a file from `old` to `new`. A new file gets the rights of the open file `like`."""
        folder, name = os.path.split(path)
        self.doing = f"Failed to create parent directories for {label}"
        self.folders.open(folder, create=old is None)
        self.doing = f"Failed to delete file {label}" if new is None else f"Failed to write file {label}"
        step = write_steps.WriteStep(
            folder, name, f"{write_steps.PREFIX}{self.token}.{len(self.steps)}", doing=self.doing
        )
        if old is None:
            self.check_absent(step)
            self.stage_content(step, new or b"", like)
        elif new is None:
            with self.checked(path, old, os.O_RDONLY) as target:
                step.before = write_steps.stamp(os.fstat(target))
                self.keep(step)
        else:
            # The file is opened for writing only to test whether it is writable.
            with self.checked(path, old, os.O_RDWR) as target:
                step.before = write_steps.stamp(os.fstat(target))
                self.stage_content(step, new, target)

    def stage_content(self, step: write_steps.WriteStep, content: bytes, like: int | None) -> None:
        self.note(step)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        mode = NEW_FILE_MODE if like is None else 0o600
        fd = os.open(step.temp, flags, mode, dir_fd=self.folders[step.folder])
        try:
            info = os.fstat(fd)
            step.staged = [info.st_dev, info.st_ino]
            self.keep(step)
            write_steps.write_all(fd, content)
            if like is not None:
                copy_rights(like, fd)
            os.fsync(fd)
        finally:
            os.close(fd)

    def keep(self, step: write_steps.WriteStep) -> None:
        self.steps.append(step)
        self.note(step)

    def note(self, step: write_steps.WriteStep) -> None:
        """Write the step to the journal: before its first name exists, and again when the identity of its new file is
        known.
        """
        if self.journal:
            self.journal.append_record(
                {"folder": step.folder, "name": step.name, "temp": step.temp, "staged": step.staged}
            )

    # -- commit, undo, finish ----------------------------------------------------------------------

    def commit(self) -> None:
        if self.journal:
            self.journal.sync()
        for step in self.steps:
            self.doing = step.doing
            fd = self.folders[step.folder]
            if step.before is None:
                self.put_new(fd, step)
                continue
            if write_steps.stamp(os.stat(step.name, dir_fd=fd, follow_symlinks=False)) != step.before:
                raise WriteError("it has changed since the patch was checked")
            if step.staged is None:
                os.rename(step.name, step.backup, src_dir_fd=fd, dst_dir_fd=fd)
            else:
                self.put_over(fd, step)
        if self.journal:
            self.journal.append_record({"done": True})
            self.journal.sync()

    def put_new(self, fd: int, step: write_steps.WriteStep) -> None:
        """Put a new file in place by a link, because a link fails if the name exists by now; a rename would replace the
        file.
        """
        try:
            os.link(step.temp, step.name, src_dir_fd=fd, dst_dir_fd=fd, follow_symlinks=False)
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EACCES):
                raise
            self.check_absent(step)
            os.rename(step.temp, step.name, src_dir_fd=fd, dst_dir_fd=fd)

    def put_over(self, fd: int, step: write_steps.WriteStep) -> None:
        if self.several:
            try:
                os.link(step.name, step.backup, src_dir_fd=fd, dst_dir_fd=fd, follow_symlinks=False)
            except OSError as error:
                if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EACCES, errno.EMLINK):
                    raise
                os.rename(step.name, step.backup, src_dir_fd=fd, dst_dir_fd=fd)
        os.rename(step.temp, step.name, src_dir_fd=fd, dst_dir_fd=fd)

    def undo(self) -> None:
        """Restore the state before the patch: first the files, then the directories that were created for them."""
        for step in reversed(self.steps):
            try:
                write_steps.undo_step(self.folders[step.folder], step)
            except OSError:
                self.stuck.append(
                    f"Could not put back {os.path.join(step.folder, step.name)}: see {step.backup} there"
                )
        self.folders.remove_created()
        if self.journal and not self.stuck:
            self.journal.remove()

    def finish(self) -> None:
        for step in self.steps:
            fd = self.folders[step.folder]
            for name in (step.temp, step.backup):
                with contextlib.suppress(OSError):
                    os.unlink(name, dir_fd=fd)
        self.folders.sync()
        if self.journal:
            self.journal.remove()

    def close(self) -> None:
        if self.journal:
            self.journal.close()

    # -- checks ------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def checked(self, path: str, old: bytes | None, access: int) -> Iterator[int]:
        """Open the file at `path`, if it is a regular file and its content is still `old`."""
        folder, name = os.path.split(path)
        flags = access | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
        fd = os.open(name, flags, dir_fd=self.folders.open(folder))
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise WriteError("it is no regular file any more")
            if write_steps.read_up_to(fd, len(old or b"") + 1) != old:
                raise WriteError("its content has changed since the patch was checked")
            yield fd
        finally:
            os.close(fd)

    def check_absent(self, step: write_steps.WriteStep) -> None:
        if write_steps.identity(self.folders[step.folder], step.name) is not None:
            raise WriteError("it has come into being since the patch was checked")

    def open_journal(self, edits: list[EditDocument]) -> None:
        """Create the journal in the working directory, where the next writer searches for it; else beside the first
        file.
        """
        self.doing = f"Failed to write file {edits[0]['label']}"
        for path in (self.cwd, os.path.dirname(edits[0]["path"])):
            with contextlib.suppress(OSError):
                self.journal = write_steps.PatchJournal(
                    self.folders.open(path), f"{write_steps.PREFIX}{self.token}.journal"
                )
                return


def copy_rights(source: int, target: int) -> None:
    """Copy permissions, owner and attributes as far as permitted. Set-user-id bits are dropped, as any write does."""
    info = os.fstat(source)
    own = os.fstat(target)
    if (info.st_uid, info.st_gid) != (own.st_uid, own.st_gid):
        with contextlib.suppress(OSError):
            os.fchown(target, info.st_uid, info.st_gid)
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            for name in os.listxattr(source):
                os.setxattr(target, name, os.getxattr(source, name))
    os.fchmod(target, stat.S_IMODE(info.st_mode) & 0o777)


def main(_arguments: object) -> int:
    signal.pthread_sigmask(signal.SIG_BLOCK, UNINTERRUPTED)
    status, out, err = apply_document(sys.stdin.buffer.read())
    sys.stdout.buffer.write(os.fsencode(out))
    sys.stderr.buffer.write(os.fsencode(err))
    return status
