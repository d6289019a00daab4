"""Namespaces in which everything except the writable roots is read-only. Linux.

Steps: a prepared parent calls `unshare`, the launcher writes its maps (`write_maps`), then the parent calls
`prepare_mounts`. Each command is cloned with PER_COMMAND and calls `enter`, then `open_roots`. Only this layer covers
metadata (mode, owner, times, attributes), other processes, and descendants in sessions of their own.

A plan has real paths, but a command may have replaced a part of them since. Roots are opened without following links,
so that the opened folder is the one that was granted. A root that cannot be opened in this way is left out.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import time

from app_server.engine.sandbox.launcher.stdlib_min import Any, suppress
from app_server.engine.sandbox.launcher.syscalls import AT_FDCWD, CLONE_NEWNET, call, open_place
from app_server.engine.support.light_dataclasses import dataclass

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x00020000, 0x04000000, 0x08000000
CLONE_NEWUSER, CLONE_NEWPID = 0x10000000, 0x20000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REC, MS_PRIVATE = 1, 2, 4, 8, 16384, 1 << 18
MNT_DETACH = 2
ATTR_RDONLY, ATTR_NOSUID, ATTR_NODEV = 1, 2, 4
AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH, AT_RECURSIVE = 0x100, 0x1000, 0x8000
OPEN_TREE_CLONE, OPEN_TREE_CLOEXEC = 1, os.O_CLOEXEC
MOVE_MOUNT_F_EMPTY_PATH, MOVE_MOUNT_T_EMPTY_PATH = 0x04, 0x40


class Attributes(ctypes.Structure):
    """struct mount_attr"""

    _fields_ = (
        ("attr_set", ctypes.c_uint64),
        ("attr_clr", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    )


def mount(source: bytes, target: bytes, kind: bytes | None, flags: int, data: bytes | None = None) -> None:
    call("mount", source, target, kind, flags, data)


def set_attributes(path: bytes, *, add: int = 0, clear: int = 0, flags: int = 0, at: int = AT_FDCWD) -> None:
    """Call mount_setattr(2) on the mount at `path`, or on the mount of the descriptor `at`."""
    attributes = Attributes(add, clear, 0, 0)
    call("mount_setattr", at, path, flags, ctypes.byref(attributes), ctypes.sizeof(attributes))


def open_tree(path: bytes, flags: int = 0, at: int = AT_FDCWD) -> int:
    """Return a descriptor of a detached copy of the mount at `path`. A relative path begins at the folder `at`."""
    return call("open_tree", at, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | flags)


def attach(tree: int, place: bytes | int) -> None:
    """Mount a detached tree and close it. `place` is a path, whose last component is not followed if it is a link, or a
    descriptor of the mount point.
    """
    try:
        if isinstance(place, int):
            call("move_mount", tree, b"", place, b"", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH)
        else:
            call("move_mount", tree, b"", AT_FDCWD, place, MOVE_MOUNT_F_EMPTY_PATH)
    finally:
        os.close(tree)


MAX_ENTRIES = 200
"""Maximum number of entries of the home that are shown: each entry costs every command a mount."""
TRIES = 5
"""Maximum number of attempts, because another folder may replace the home at any moment."""
RACY_NS = 50_000_000
"""Age in nanoseconds below which a change is racy: a folder that changed so shortly before the read may change again
with the same time stamp.
"""


@dataclass(slots=True)
class ShownHome:
    """A mounted view of the home without its files, and the state of the home from which it was made."""

    path: bytes
    secrets: list[bytes]
    folder: int
    """Descriptor of the real folder, closed once the files are mounted."""
    files: list[bytes]
    changed: tuple[int, int]
    """Modification and status change time of the folder, in nanoseconds."""
    racy: bool
    """Whether the folder had changed too shortly before for its time stamps to prove anything."""
    cover: tuple[int, int]
    """Device and inode of the mount at the path."""

    def current(self, confine: dict[str, Any]) -> bool:
        """Return whether the view is valid for this command. Callers call it before the roots are opened."""
        path: bytes = confine["home"]
        now = _changed(os.fstat(self.folder))
        if self.racy or now != self.changed or (path, confine["secrets"]) != (self.path, self.secrets):
            return False
        # A writable root that contains the home makes it writable as well, unless the home is protected in it.
        inside = any(path.startswith(root.rstrip(b"/") + b"/") for root in confine["roots"])
        return (path in confine["protected"] or not inside) and _identity(os.stat(path)) == self.cover

    def complete(self) -> None:
        """Mount the files of the home, too."""
        for name in self.files:
            with suppress(OSError):
                attach(open_tree(name, AT_SYMLINK_NOFOLLOW, self.folder), os.path.join(self.path, name))
        os.close(self.folder)  # no command may inherit it

    def undo(self) -> None:
        os.close(self.folder)
        with suppress(OSError):  # another folder may have replaced the home
            call("umount2", self.path, MNT_DETACH)


def show(home: bytes, secrets: list[bytes]) -> ShownHome | None:
    """Mount the view, without files, over `home`. Return None if there is no such folder."""
    for _ in range(TRIES):
        try:
            folder = os.open(home, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            return None
        try:
            return _show(home, secrets, folder)
        except OSError as error:
            os.close(folder)
            if error.errno != errno.EINVAL:
                raise
            # The path is not a mount point: another folder has replaced it since.
    raise OSError(errno.EAGAIN, "the server's home is replaced again and again")


def _show(home: bytes, secrets: list[bytes], folder: int) -> ShownHome:
    changed = _changed(os.fstat(folder))
    entries = _entries(home, secrets)
    mount(b"home", home, b"tmpfs", MS_NOSUID | MS_NODEV, b"mode=755,size=256k")
    files: list[bytes] = []
    for name in entries:
        path = os.path.join(home, name)
        with suppress(OSError):
            if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                tree = open_tree(name, AT_RECURSIVE | AT_SYMLINK_NOFOLLOW, folder)
                os.mkdir(path)
                attach(tree, path)
            else:
                os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
                files.append(name)
    set_attributes(home, add=ATTR_RDONLY)
    racy = time.time_ns() - max(changed) < RACY_NS
    return ShownHome(home, secrets, folder, files, changed, racy, _identity(os.stat(home)))


def _entries(home: bytes, secrets: list[bytes]) -> list[bytes]:
    try:
        staged = tuple(
            b"." + name + b"." for name in secrets
        )  # the next content of one, or what a kill left of it
        entries = sorted(name for name in set(os.listdir(home)) - set(secrets) if not name.startswith(staged))
    except OSError:
        return []
    return entries if len(entries) <= MAX_ENTRIES else []


def _changed(status: os.stat_result) -> tuple[int, int]:
    return status.st_mtime_ns, status.st_ctime_ns


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES)


def open_unlinked(paths: list[bytes]) -> list[int]:
    """Return a descriptor for each root that exists. The caller closes them before the command runs."""
    opened: list[int] = []
    for path in paths:
        try:
            place = open_place(path)
        except OSError as error:
            if error.errno not in GONE:
                raise
            continue
        if stat.S_ISDIR(kind := os.fstat(place).st_mode) or stat.S_ISREG(kind):
            opened.append(place)
        else:  # a link has replaced the root
            os.close(place)
    return opened


HIDDEN_FOLDER, HIDDEN_FILE = b"/dev/.hidden-folder", b"/dev/.hidden-file"
"""Mount sources over hidden folders and hidden files of a permission profile. They grant no rights at all."""

PER_COMMAND = CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC

DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
LINKS = (("fd", "/proc/self/fd"), ("stdin", "/proc/self/fd/0"), ("stdout", "/proc/self/fd/1"))
MORE_LINKS = (("stderr", "/proc/self/fd/2"), ("ptmx", "pts/ptmx"))

KERNEL_SECRETS = (b"kcore", b"keys", b"timer_list", b"latency_stats", b"sched_debug")
"""Names of files below /proc that user 0 can read; /dev/null is mounted over them."""

SHARED_MEMORY = b"mode=1777,size=25%"


def unshare(network: bool) -> None:
    """Make new user, mount and uts namespaces, and a network namespace if the network is off."""
    call("unshare", CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWUTS | (0 if network else CLONE_NEWNET))


def write_maps(pid: int) -> None:
    """Map every user and group that this process may map to itself. The parent of `pid` calls it."""
    if os.geteuid() == 0:
        for kind in ("uid_map", "gid_map"):
            with open(f"/proc/self/{kind}") as file:
                ranges = [line.split() for line in file]
            _write(pid, kind, "".join(f"{inside} {inside} {count}\n" for inside, _, count in ranges))
        return
    _write(pid, "setgroups", "deny")
    _write(pid, "uid_map", f"{os.geteuid()} {os.geteuid()} 1\n")
    _write(pid, "gid_map", f"{os.getegid()} {os.getegid()} 1\n")


def _write(pid: int, name: str, text: str) -> None:
    number = os.open(f"/proc/{pid}/{name}", os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(number, text.encode())
    finally:
        os.close(number)


def prepare_mounts() -> None:
    """Detach this process from later mounts of the host, make all mounts read-only, and mount a small private /dev."""
    mount(b"none", b"/", None, MS_REC | MS_PRIVATE)
    devices = [
        (name, open_tree(f"/dev/{name}".encode())) for name in DEVICES if os.path.exists(f"/dev/{name}")
    ]
    for _, tree in devices:
        # A device on a read-only mount can be written to. Its mode, owner and times, which are the machine's, cannot be
        # changed.
        set_attributes(b"", add=ATTR_RDONLY | ATTR_NOSUID, flags=AT_EMPTY_PATH, at=tree)
    set_attributes(b"/", add=ATTR_RDONLY | ATTR_NOSUID | ATTR_NODEV, flags=AT_RECURSIVE)
    mount(b"dev", b"/dev", b"tmpfs", MS_NOSUID | MS_NOEXEC, b"mode=755,size=64k")
    for name, tree in devices:
        path = f"/dev/{name}".encode()
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o666))
        attach(tree, path)
    for name, target in (*LINKS, *MORE_LINKS):
        os.symlink(target, f"/dev/{name}")
    os.mkdir("/dev/shm")
    os.mkdir("/dev/pts")
    os.mkdir(HIDDEN_FOLDER, 0)
    os.close(os.open(HIDDEN_FILE, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0))
    set_attributes(b"/dev", add=ATTR_RDONLY)


def enter(server_home: bytes, secrets: list[bytes]) -> ShownHome | None:
    """In a new process 1, mount its own /proc, terminals and shared memory, and the home without secrets."""
    # It is read-only like the rest: for /proc/sys, user 0 of this namespace counts as user 0 of the host.
    mount(b"proc", b"/proc", b"proc", MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_RDONLY)
    if os.geteuid() == 0:
        for name in KERNEL_SECRETS:
            if os.path.exists(path := b"/proc/" + name):
                attach(open_tree(b"/dev/null"), path)
    mount(b"shm", b"/dev/shm", b"tmpfs", MS_NOSUID | MS_NODEV, SHARED_MEMORY)
    mount(b"devpts", b"/dev/pts", b"devpts", MS_NOSUID | MS_NOEXEC, b"newinstance,ptmxmode=0666,mode=620")
    return show(server_home, secrets)


def open_roots(confine: dict[str, Any], shown: ShownHome | None) -> list[int]:
    """Make the roots of this command writable, including the protected paths in them, and hide the secrets. Return
    descriptors of the roots.
    """
    current = shown is not None and shown.current(confine)
    if shown is not None and current:
        shown.complete()
    elif shown is not None:
        shown.undo()
    roots = open_unlinked(confine["roots"])
    for root in roots:
        _make_writable(root)
    # The secrets stay hidden, even if their files are replaced later.
    if not current and (again := show(confine["home"], confine["secrets"])) is not None:
        again.complete()
    return roots


def _make_writable(root: int) -> None:
    tree = open_tree(b"", AT_RECURSIVE | AT_EMPTY_PATH, root)
    try:
        set_attributes(b"", clear=ATTR_RDONLY, flags=AT_RECURSIVE | AT_EMPTY_PATH, at=tree)
    except PermissionError:
        # A mount below the root is read-only on the host and stays so; only the root itself becomes writable.
        set_attributes(b"", clear=ATTR_RDONLY, flags=AT_EMPTY_PATH, at=tree)
    attach(tree, root)


def pin(path: bytes, *, protected: bool) -> None:
    """Mount `path` on itself, because a mount point can be neither renamed nor removed. A protected path becomes
    read-only as well. A link is not followed.
    """
    try:
        place = open_place(path)
    except (FileNotFoundError, NotADirectoryError):
        return  # removed since the plan was made: a placeholder of another command, or by the user
    try:
        tree = open_tree(b"", AT_RECURSIVE | AT_EMPTY_PATH, place)
        if protected:
            set_attributes(b"", add=ATTR_RDONLY, flags=AT_RECURSIVE | AT_EMPTY_PATH, at=tree)
        attach(tree, place)
    except FileNotFoundError:
        if os.fstat(place).st_nlink:  # otherwise it was removed at this moment
            raise
    finally:
        os.close(place)
