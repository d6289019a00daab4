"""Opens names beneath a folder: the only way in which the server reads or writes a file of a workspace by its name.

Commands change a workspace while the server works in it. A program that checks a name and opens it later can be led out
of the folder by a link that was exchanged meanwhile, with rights that no command has. Here every component is opened
from the folder before it, never through a link, so the opened file is the checked one. The server's own credentials are
refused, by any name that leads to them. Standard library only: the engine and the front ends use it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from types import TracebackType
from typing import BinaryIO, Self

SECRET_FILES = ("auth.json", ".credentials.json", ".locks", "app-server-control")
"""Names in the server's home that no command, model or client may open: credentials, the locks of transcripts, and the
folder with the socket, the locks and the token of a shared server.
"""
SECRETS_IN_FOLDERS = ("app-server-control/ws-token",)

MAX_DEPTH = 256
"""Maximum number of folders between the root and a file: each takes a descriptor while it is open."""
MAX_LINKS = 40
"""Maximum number of links followed for one name; the limit of Linux."""
READ_SIZE = 1 << 20

PROCESSES = "/proc"
_OF_A_PROCESS = r"/proc/\d+/"

_LIST = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER = _LIST
if sys.platform == "linux":
    _FOLDER |= os.O_PATH  # to pass through a folder, the right to list it is not needed
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class RefusedName(PermissionError):
    """A name leads out of the folder, to credentials, or to a file that is not regular."""


class TooLarge(OSError):
    """A file is larger than what the caller reads."""


class RootDir:
    """An open folder, and the files and folders beneath it. A context manager; not for several threads at once.

    Names are relative to the folder. The folders on the way to the last name stay open, so that names in sorted order
    cost one step each. All methods block, and raise `OSError`; `RefusedName` where opening would be unsafe.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        home: str | os.PathLike[str] | None = None,
        fences: Sequence[str] = (),
    ) -> None:
        """Open the folder at the absolute path `root`, no component of which may be a link: pass a real path.

        `home` is the server's home, whose credentials are refused. `fences` are folders that commands may change: a
        link in one leads no further than the fence.
        """
        self.root = os.fsencode(os.path.abspath(root))
        self._home = None if home is None else os.fspath(home)
        self._fences = [os.fsencode(os.path.realpath(each)) for each in fences]
        self._chain: list[tuple[bytes, int]] = []
        self._root = os.open("/", _FOLDER)
        try:
            for part in _parts(self.root):
                self._root = _replaced(self._root, os.open(part, _FOLDER, dir_fd=self._root))
        except BaseException:
            os.close(self._root)
            raise

    @classmethod
    def named_by_user(cls, folder: str | os.PathLike[str]) -> Self:
        """Open a folder that the user named on a command line: links on the way to it are the user's own."""
        return cls(os.path.realpath(folder, strict=True))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._leave(0)
        if self._root >= 0:
            os.close(self._root)
            self._root = -1

    def stat(self, name: str | bytes) -> os.stat_result:
        """Return the status of the file, folder or link at `name`; of a link its own."""
        folder, last = self._place(name)
        return os.stat(last, dir_fd=folder, follow_symlinks=False)

    def read_link(self, name: str | bytes) -> bytes:
        """Return the target of the link at `name`."""
        folder, last = self._place(name)
        return os.readlink(last, dir_fd=folder)

    def list(self, name: str | bytes = b"", most: int | None = None) -> Sequence[str]:
        """Return the names in the folder at `name`, unsorted, and no more than `most`."""
        with self.entries(name) as entries:
            return [entry.name for entry in islice(entries, most)]

    @contextlib.contextmanager
    def entries(self, name: str | bytes = b"") -> Iterator[Iterator[os.DirEntry[str]]]:
        """List the folder at `name`. The status of entries must be read before the block ends."""
        listed = self._open_folder(name)
        try:
            with os.scandir(listed) as entries:
                yield entries
        finally:
            os.close(listed)

    def walk(self, visit: Callable[[int, str, Sequence[str]], Iterable[str]]) -> None:
        """Call `visit` for this folder and folders beneath it: with a descriptor, the path relative to this folder with
        a slash at its end, and the names in it. It returns the names of the folders that are visited next. Those that
        cannot be opened are passed over.
        """
        listed = self._open_folder(b"")
        try:
            _walk(listed, "", visit, MAX_DEPTH)
        finally:
            os.close(listed)

    def _open_folder(self, name: str | bytes) -> int:
        parts = _parts(name)
        return os.open(parts[-1] if parts else b".", _LIST, dir_fd=self._enter(parts[:-1]))

    @contextlib.contextmanager
    def opened(
        self, name: str | bytes, *, follow_links: bool = False
    ) -> Iterator[tuple[int, os.stat_result]]:
        """Open the regular file at `name` for reading; yield its descriptor and status.

        With `follow_links`, links that stay beneath the folder are followed.
        """
        folder, last = self._place(self._resolved(name) if follow_links else name)
        # A pipe or device is refused before it is opened, because opening one may have an effect.
        _check_regular(os.stat(last, dir_fd=folder, follow_symlinks=False), name)
        descriptor = os.open(last, _READ, dir_fd=folder)
        try:
            status = os.fstat(descriptor)
            _check_regular(status, name)
            if may_hold_secrets(descriptor, status, self._home):
                raise RefusedName(errno.EACCES, "kept secret by the server", os.fsdecode(name))
            yield descriptor, status
        finally:
            os.close(descriptor)

    def read(self, name: str | bytes, most: int, *, follow_links: bool = False) -> bytes:
        """Return the content of the regular file at `name`. Raises `TooLarge` beyond `most` bytes."""
        with self.opened(name, follow_links=follow_links) as (descriptor, status):
            if status.st_size > most:
                raise TooLarge(errno.EFBIG, os.strerror(errno.EFBIG), os.fsdecode(name))
            return read_up_to(descriptor, most, os.fsdecode(name))

    def replace(self, name: str | bytes, content: bytes, mode: int) -> None:
        """Write a file of exactly these permission bits at `name`, in one step; makes missing folders."""
        with self.staged(name, mode) as file:
            file.write(content)

    @contextlib.contextmanager
    def staged(self, name: str | bytes, mode: int, aside: RootDir | None = None) -> Iterator[BinaryIO]:
        """Make a file with exactly these permission bits, which is renamed to `name` when the block ends; makes missing
        folders.

        It is made in the folder of `name`, or in `aside`, a folder of the same file system. A file that a killed server
        leaves there has a name by which git removes it from its folder of objects.
        """
        folder, last = self._place(name, create=True)
        source, staged = (folder, _staged_name()) if aside is None else (aside._root, _staged_name("tmp_"))
        descriptor = os.open(staged, _CREATE, 0o600, dir_fd=source)
        try:
            with open(descriptor, "wb") as file:
                yield file
                os.fchmod(file.fileno(), mode)
            os.replace(staged, last, src_dir_fd=source, dst_dir_fd=folder)
        except BaseException:
            os.unlink(staged, dir_fd=source)
            raise

    def replace_with_link(self, name: str | bytes, target: bytes) -> None:
        """Make a link at `name`, in one step; makes missing folders."""
        folder, last = self._place(name, create=True)
        staged = _staged_name()
        os.symlink(target, staged, dir_fd=folder)
        try:
            os.replace(staged, last, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            os.unlink(staged, dir_fd=folder)
            raise

    def remove(self, name: str | bytes) -> None:
        """Remove the file or link at `name`."""
        folder, last = self._place(name)
        os.unlink(last, dir_fd=folder)

    def remove_folder(self, name: str | bytes) -> None:
        """Remove the empty folder at `name`."""
        folder, last = self._place(name)
        os.rmdir(last, dir_fd=folder)

    def _place(self, name: str | bytes, *, create: bool = False) -> tuple[int, bytes]:
        """Return the descriptor of the folder that holds `name`, and its last component."""
        parts = _parts(name)
        if not parts:
            raise RefusedName(errno.EISDIR, os.strerror(errno.EISDIR), os.fsdecode(name))
        return self._enter(parts[:-1], create=create), parts[-1]

    def _enter(self, parts: Sequence[bytes], *, create: bool = False) -> int:
        """Open the folder at `parts`; folders that are open already are not opened again."""
        if len(parts) > MAX_DEPTH:
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), os.fsdecode(b"/".join(parts)))
        shared = 0
        while shared < min(len(parts), len(self._chain)) and self._chain[shared][0] == parts[shared]:
            shared += 1
        self._leave(shared)
        for part in parts[shared:]:
            inside = self._inside()
            if create:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, dir_fd=inside)
            self._chain.append((part, os.open(part, _FOLDER, dir_fd=inside)))
        return self._inside()

    def _inside(self) -> int:
        return self._chain[-1][1] if self._chain else self._root

    def _leave(self, depth: int) -> None:
        while len(self._chain) > depth:
            os.close(self._chain.pop()[1])

    def _resolved(self, name: str | bytes) -> bytes:
        """Return the name without links to which `name` leads. Raises `RefusedName` if it leads out."""
        waiting, done = deque(_parts(name, parents=True)), list[bytes]()
        links, fences = 0, set[bytes]()
        while waiting:
            part = waiting.popleft()
            if part == b"..":
                if done:
                    done.pop()
                elif self.root != b"/":
                    raise _leads_out(name)
                continue
            try:
                target = os.readlink(part, dir_fd=self._enter(done))
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
                done.append(part)  # not a link
                continue
            links += 1
            if links > MAX_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), os.fsdecode(name))
            fences.update(self._fences_around(done))
            if target.startswith(b"/"):
                if not _within(target, self.root):
                    raise _leads_out(name)
                target, done = target[len(self.root) :], []
            waiting.extendleft(reversed(_parts(target, parents=True)))
        if not all(_within(self._path(done), fence) for fence in fences):
            raise _leads_out(name)
        return b"/".join(done)

    def _fences_around(self, folder: Sequence[bytes]) -> Iterable[bytes]:
        """Return the fences around a folder; none around the server's home, where no command may write."""
        path = self._path(folder)
        if self._fences and self._home and _within(path, os.fsencode(os.path.realpath(self._home))):
            return ()
        return (fence for fence in self._fences if _within(path, fence))

    def _path(self, parts: Sequence[bytes]) -> bytes:
        return os.path.join(self.root, *parts)


def read_named(
    path: str | os.PathLike[str],
    most: int,
    home: str | os.PathLike[str] | None = None,
    fences: Sequence[str] = (),
) -> bytes:
    """Return the content of a regular file that the user named by a path; links on the way are the user's own.

    `home` and `fences` are those of `RootDir`. Raises `TooLarge` beyond `most` bytes.
    """
    with RootDir("/", home, fences) as disk:
        return disk.read(os.fspath(path), most, follow_links=True)


def _walk(
    folder: int, path: str, visit: Callable[[int, str, Sequence[str]], Iterable[str]], depth: int
) -> None:
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for name in visit(folder, path, names):
        try:
            inner = os.open(name, _LIST, dir_fd=folder)
        except OSError:
            continue
        try:
            if depth:
                _walk(inner, f"{path}{name}/", visit, depth - 1)
        finally:
            os.close(inner)


def may_hold_secrets(descriptor: int, status: os.stat_result, home: str | None) -> bool:
    """Return whether an open file is one of the credentials in the server's `home`, or contains data of a process."""
    return (home is not None and holds_credentials(status, home)) or _shows_a_process(descriptor, status)


def holds_credentials(status: os.stat_result, home: str) -> bool:
    """Return whether a file is one of the credentials in the server's `home`, by whatever name it was opened."""
    for name in (*SECRET_FILES, *SECRETS_IN_FOLDERS):
        try:
            secret = os.stat(os.path.join(home, name))
        except OSError:
            continue
        if os.path.samestat(status, secret):
            return True
    return False


def _shows_a_process(descriptor: int, status: os.stat_result) -> bool:
    """Return whether a file is one of /proc about a process, in which the server's own environment could be read."""
    try:
        if os.stat(PROCESSES).st_dev != status.st_dev:
            return False
        return re.match(_OF_A_PROCESS, os.readlink(f"{PROCESSES}/self/fd/{descriptor}")) is not None
    except OSError:  # a system without /proc
        return False


def read_up_to(descriptor: int, most: int, name: str) -> bytes:
    """Read an open file to its end. Raises `TooLarge` beyond `most` bytes: it may have grown meanwhile."""
    pieces: list[bytes] = []
    left = most + 1
    while left > 0:
        piece = os.read(descriptor, min(left, READ_SIZE))
        if not piece:
            return b"".join(pieces)
        pieces.append(piece)
        left -= len(piece)
    raise TooLarge(errno.EFBIG, os.strerror(errno.EFBIG), name)


def _parts(name: str | bytes, *, parents: bool = False) -> list[bytes]:
    """Split a name into its components. Raises `RefusedName` for `..`, unless `parents` are allowed."""
    try:
        encoded = os.fsencode(name)
    except UnicodeEncodeError as error:
        raise OSError(errno.EILSEQ, os.strerror(errno.EILSEQ)) from error
    if b"\0" in encoded:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), os.fsdecode(encoded))
    parts = [part for part in encoded.split(b"/") if part not in (b"", b".")]
    if not parents and b".." in parts:
        raise _leads_out(name)
    return parts


def _check_regular(status: os.stat_result, name: str | bytes) -> None:
    if stat.S_ISREG(status.st_mode):
        return
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fsdecode(name))
    raise RefusedName(errno.EINVAL, "not a regular file", os.fsdecode(name))


def _leads_out(name: str | bytes) -> RefusedName:
    return RefusedName(errno.EXDEV, "a link out of its folder", os.fsdecode(name))


def _within(path: bytes, folder: bytes) -> bool:
    return (path + b"/").startswith(folder.rstrip(b"/") + b"/")


def _replaced(old: int, new: int) -> int:
    os.close(old)
    return new


def _staged_name(prefix: str = ".staged-") -> str:
    """Return a random name, under which no command can have made a file."""
    return f"{prefix}{os.urandom(8).hex()}"
