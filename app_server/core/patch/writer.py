"""Writes a planned patch to the disk, completely or not at all. Alone: `python -I -S writer.py < document`.

Standard library only and no import of this package, so that it starts quickly and inside any sandbox: the
rights it writes with are those of its process. `apply_document` does the same within a process.

    check     every file still holds what the plan saw, and may be written
    stage     new contents go to temporary files beside their targets and are flushed
    commit    the old file gets a second name, the temporary one its place: one rename or link a file
    undo      whatever fails, the steps taken are taken back, by renames alone: that needs no space

Paths in the document are real ones. Every component is opened without following links, so that one which
has come into the path since the plan was judged is an error. Files that are replaced are new ones: a hard
link elsewhere keeps the old content. A journal beside the working directory's files lets the next writer
undo a killed one.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import signal
import stat
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # neither is there at run time: importing them takes longer than the rest
    from collections.abc import Iterator
    from typing import Any

PREFIX = ".apply-patch-"
NEW_FILE_MODE = 0o644
DENIED = (errno.EACCES, errno.EPERM, errno.EROFS)
UNINTERRUPTED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Blocked while files are written."""
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
if sys.platform == "linux":
    DIRECTORY |= os.O_PATH  # passing through a directory takes no right to list it


class WriteError(Exception):
    """Nothing was changed, or all of it was taken back."""


class Step:
    """One name in one directory that gets other content, or goes."""

    __slots__ = ("backup", "before", "doing", "folder", "name", "staged", "temp")

    def __init__(
        self, folder: str, name: str, temp: str, staged: list[int] | None = None, doing: str = ""
    ) -> None:
        self.folder = folder
        self.name = name
        self.temp = temp
        """Where the new content waits."""
        self.backup = temp + ".old"
        """The second name of the old file, while it may be needed again."""
        self.staged = staged
        """Device and inode of the new file; None if the name goes."""
        self.before: list[int] | None = None
        """What the checked file was recognised by; None if there was none."""
        self.doing = doing


def apply_document(document: bytes) -> tuple[int, str, str]:
    """Exit status, and what belongs on stdout and stderr."""
    plan = json.loads(document)
    work = Writer(plan["token"], plan["cwd"])
    try:
        with contextlib.ExitStack() as stack:
            stack.callback(work.close)
            if plan["recover"]:
                work.recover()
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
    """The steps of one patch, the directories they happen in, and how to take them back."""

    def __init__(self, token: str, cwd: str) -> None:
        self.token = token
        self.cwd = cwd
        self.folders: dict[str, int] = {}
        self.made: list[tuple[int, str]] = []
        self.steps: list[Step] = []
        self.journal: Journal | None = None
        self.several = False
        self.stuck: list[str] = []
        self.doing = "Failed to write files"

    def failure(self, error: Exception) -> str:
        """A refusal for lack of rights has no reason, as clients and models know it from this tool."""
        reason = ""
        if isinstance(error, WriteError):
            reason = f": {error}"
        elif isinstance(error, OSError) and error.errno is not None and error.errno not in DENIED:
            reason = f": {os.strerror(error.errno)} (os error {error.errno})"
        return "\n".join([self.doing + reason, *self.stuck])

    # -- stage ----------------------------------------------------------------------------------

    def stage(self, edits: list[dict[str, Any]]) -> None:
        self.several = len(edits) > 1 or any(edit["to_path"] for edit in edits)
        if self.several:
            self.open_journal(edits)
        for edit in edits:
            old = None if edit["old"] is None else edit["old"].encode("utf-8")
            new = None if edit["new"] is None else edit["new"].encode("utf-8")
            if edit["to_path"]:
                self.doing = f"Failed to read file to update {edit['label']}"
                with self.checked(edit["path"], old, os.O_RDONLY) as source:
                    self.stage_file(edit["to_label"], edit["to_path"], None, new, source)
                self.stage_file(edit["label"], edit["path"], old, None)
            else:
                self.stage_file(edit["label"], edit["path"], old, new)

    def stage_file(
        self, label: str, path: str, old: bytes | None, new: bytes | None, like: int | None = None
    ) -> None:
        """From `old` to `new`; `like` is an open file whose rights a new one gets."""
        folder, name = os.path.split(path)
        self.doing = f"Failed to create parent directories for {label}"
        self.folder(folder, make=old is None)
        self.doing = f"Failed to delete file {label}" if new is None else f"Failed to write file {label}"
        step = Step(folder, name, f"{PREFIX}{self.token}.{len(self.steps)}", doing=self.doing)
        if old is None:
            self.check_absent(step)
            self.stage_content(step, new or b"", like)
        elif new is None:
            with self.checked(path, old, os.O_RDONLY) as target:
                step.before = stamp(os.fstat(target))
                self.keep(step)
        else:
            # Opened for writing to learn whether it may be written; nothing is written to it.
            with self.checked(path, old, os.O_RDWR) as target:
                step.before = stamp(os.fstat(target))
                self.stage_content(step, new, target)

    def stage_content(self, step: Step, content: bytes, like: int | None) -> None:
        self.note(step)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        mode = NEW_FILE_MODE if like is None else 0o600
        fd = os.open(step.temp, flags, mode, dir_fd=self.folders[step.folder])
        try:
            info = os.fstat(fd)
            step.staged = [info.st_dev, info.st_ino]
            self.keep(step)
            write_all(fd, content)
            if like is not None:
                copy_rights(like, fd)
            os.fsync(fd)
        finally:
            os.close(fd)

    def keep(self, step: Step) -> None:
        self.steps.append(step)
        self.note(step)

    def note(self, step: Step) -> None:
        """Before the first name of the step exists, and again when its new file can be recognised."""
        if self.journal:
            self.journal.write(
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
            if stamp(os.stat(step.name, dir_fd=fd, follow_symlinks=False)) != step.before:
                raise WriteError("it has changed since the patch was checked")
            if step.staged is None:
                os.rename(step.name, step.backup, src_dir_fd=fd, dst_dir_fd=fd)
            else:
                self.put_over(fd, step)
        if self.journal:
            self.journal.write({"done": True})
            self.journal.sync()

    def put_new(self, fd: int, step: Step) -> None:
        """A link refuses to take a name that has come into use; a rename would not."""
        try:
            os.link(step.temp, step.name, src_dir_fd=fd, dst_dir_fd=fd, follow_symlinks=False)
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EACCES):
                raise
            self.check_absent(step)
            os.rename(step.temp, step.name, src_dir_fd=fd, dst_dir_fd=fd)

    def put_over(self, fd: int, step: Step) -> None:
        if self.several:
            try:
                os.link(step.name, step.backup, src_dir_fd=fd, dst_dir_fd=fd, follow_symlinks=False)
            except OSError as error:
                if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EACCES, errno.EMLINK):
                    raise
                os.rename(step.name, step.backup, src_dir_fd=fd, dst_dir_fd=fd)
        os.rename(step.temp, step.name, src_dir_fd=fd, dst_dir_fd=fd)

    def undo(self) -> None:
        """Back to before: files first, then the directories made for them."""
        for step in reversed(self.steps):
            try:
                undo_step(self.folders[step.folder], step)
            except OSError:
                self.stuck.append(
                    f"Could not put back {os.path.join(step.folder, step.name)}: see {step.backup} there"
                )
        for fd, name in reversed(self.made):
            with contextlib.suppress(OSError):
                os.rmdir(name, dir_fd=fd)
        if self.journal and not self.stuck:
            self.journal.remove()

    def finish(self) -> None:
        for step in self.steps:
            fd = self.folders[step.folder]
            for name in (step.temp, step.backup):
                with contextlib.suppress(OSError):
                    os.unlink(name, dir_fd=fd)
        for fd in self.folders.values():
            sync_folder(fd)
        if self.journal:
            self.journal.remove()

    def close(self) -> None:
        for fd in (*self.folders.values(), *(fd for fd, _ in self.made)):
            os.close(fd)
        if self.journal:
            self.journal.close()

    # -- directories and checks --------------------------------------------------------------------

    def folder(self, path: str, *, make: bool) -> int:
        """The directory at `path`, walked to from the root without following links."""
        if path in self.folders:
            return self.folders[path]
        fd = os.open("/", DIRECTORY)
        for name in path.split("/"):
            if name:
                try:
                    inner = self.step_into(fd, name, make=make)
                finally:
                    os.close(fd)
                fd = inner
        self.folders[path] = fd
        return fd

    def step_into(self, fd: int, name: str, *, make: bool) -> int:
        try:
            return os.open(name, DIRECTORY, dir_fd=fd)
        except FileNotFoundError:
            if not make:
                raise
        os.mkdir(name, 0o777, dir_fd=fd)
        self.made.append((os.dup(fd), name))
        return os.open(name, DIRECTORY, dir_fd=fd)

    @contextlib.contextmanager
    def checked(self, path: str, old: bytes | None, access: int) -> Iterator[int]:
        """The file at `path`, opened, if it is a regular one and still holds `old`."""
        folder, name = os.path.split(path)
        flags = access | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
        fd = os.open(name, flags, dir_fd=self.folder(folder, make=False))
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise WriteError("it is no regular file any more")
            if read_up_to(fd, len(old or b"") + 1) != old:
                raise WriteError("its content has changed since the patch was checked")
            yield fd
        finally:
            os.close(fd)

    def check_absent(self, step: Step) -> None:
        if identity(self.folders[step.folder], step.name) is not None:
            raise WriteError("it has come into being since the patch was checked")

    # -- the journal -------------------------------------------------------------------------------

    def open_journal(self, edits: list[dict[str, Any]]) -> None:
        """In the working directory, where the next writer looks; else beside the first file."""
        self.doing = f"Failed to write file {edits[0]['label']}"
        for path in (self.cwd, os.path.dirname(edits[0]["path"])):
            with contextlib.suppress(OSError):
                self.journal = Journal(self.folder(path, make=False), f"{PREFIX}{self.token}.journal")
                return

    def recover(self) -> None:
        """Undo what writers that were killed left half done here."""
        try:
            folder = self.folder(self.cwd, make=False)
            names = list_names(folder)
        except OSError:
            return
        for name in sorted(names):
            if name.startswith(PREFIX) and name.endswith(".journal"):
                with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                    self.recover_one(folder, name)

    def recover_one(self, folder: int, name: str) -> None:
        journal = Journal(folder, name, create=False)
        try:
            records = journal.read()
            done = any(record.get("done") for record in records)
            for record in reversed([record for record in records if "temp" in record]):
                step = Step(record["folder"], record["name"], record["temp"], record["staged"])
                if "/" in step.name + step.temp or not step.temp.startswith(PREFIX):
                    continue
                with contextlib.suppress(OSError):
                    fd = self.folder(step.folder, make=False)
                    undo_step(fd, step, forward=done)
            journal.remove()
        finally:
            journal.close()


class Journal:
    """One line a step, written before the step is taken; locked while its writer lives."""

    def __init__(self, folder: int, name: str, *, create: bool = True) -> None:
        self.folder = folder
        self.name = name
        flags = os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        self.fd = os.open(name, flags | (os.O_CREAT | os.O_EXCL if create else 0), 0o600, dir_fd=folder)
        try:
            fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self.fd)
            raise

    def write(self, record: dict[str, Any]) -> None:
        write_all(self.fd, json.dumps(record).encode("ascii") + b"\n")

    def read(self) -> list[dict[str, Any]]:
        """The whole lines; a killed writer may have left part of one."""
        lines = read_up_to(self.fd, 1 << 24).split(b"\n")[:-1]
        return [json.loads(line) for line in lines]

    def sync(self) -> None:
        os.fsync(self.fd)

    def remove(self) -> None:
        with contextlib.suppress(OSError):
            os.unlink(self.name, dir_fd=self.folder)

    def close(self) -> None:
        os.close(self.fd)


def undo_step(fd: int, step: Step, *, forward: bool = False) -> None:
    """The name is as before, wherever the step stopped; with `forward` it stays as it is. Repeatable."""
    if not forward:
        now = identity(fd, step.name)
        if identity(fd, step.backup) is not None and (now is None or now == step.staged):
            os.rename(step.backup, step.name, src_dir_fd=fd, dst_dir_fd=fd)
        elif now is not None and now == step.staged:
            os.unlink(step.name, dir_fd=fd)
    for name in (step.temp, step.backup):
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=fd)


def identity(fd: int, name: str) -> list[int] | None:
    try:
        info = os.stat(name, dir_fd=fd, follow_symlinks=False)
    except FileNotFoundError:
        return None
    return [info.st_dev, info.st_ino]


def stamp(info: os.stat_result) -> list[int]:
    return [info.st_dev, info.st_ino, info.st_mtime_ns, info.st_size]


def copy_rights(source: int, target: int) -> None:
    """Permissions, owner and attributes, as far as we may; set-user-id bits go, as with any write."""
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


def write_all(fd: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(fd, view) :]


def read_up_to(fd: int, size: int) -> bytes:
    pieces = []
    while size > 0 and (piece := os.read(fd, min(size, 1 << 20))):
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def sync_folder(fd: int) -> None:
    """The names themselves, as far as the file system lets us: the content is flushed already."""
    with contextlib.suppress(OSError):
        real = readable(fd)
        try:
            os.fsync(real)
        finally:
            os.close(real)


def list_names(fd: int) -> list[str]:
    real = readable(fd)
    try:
        return os.listdir(real)
    finally:
        os.close(real)


def readable(fd: int) -> int:
    """The same directory, opened for more than passing through it."""
    return os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=fd)


def main() -> int:
    signal.pthread_sigmask(signal.SIG_BLOCK, UNINTERRUPTED)
    status, out, err = apply_document(sys.stdin.buffer.read())
    sys.stdout.buffer.write(os.fsencode(out))
    sys.stderr.buffer.write(os.fsencode(err))
    return status


if __name__ == "__main__":
    sys.exit(main())
