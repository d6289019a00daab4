"""Namespaces in which everything except the writable roots is read-only. Linux.

Steps: a prepared parent calls `unshare`, the launcher writes its maps (`write_maps`), then it calls `prepare_mounts`.
Each command is cloned with PER_COMMAND and calls `enter`, then `open_roots`. Only this layer covers metadata (mode,
owner, times, attributes), other processes, and descendants in sessions of their own.

A plan has real paths, but a command may have replaced a part of them since. Roots are opened without following links,
so what is opened is still the folder that was granted. A root that cannot be opened in this way is left out.
"""

from __future__ import annotations

import errno
import os

from app_server.core.sandbox.confine import home
from app_server.core.sandbox.confine.syscalls import (
    AT_EMPTY_PATH,
    AT_RECURSIVE,
    ATTR_NODEV,
    ATTR_NOSUID,
    ATTR_RDONLY,
    CLONE_NEWIPC,
    CLONE_NEWNET,
    CLONE_NEWNS,
    CLONE_NEWPID,
    CLONE_NEWUSER,
    CLONE_NEWUTS,
    MS_NODEV,
    MS_NOEXEC,
    MS_NOSUID,
    MS_PRIVATE,
    MS_RDONLY,
    MS_REC,
    attach,
    attach_at,
    call,
    mount,
    open_place,
    open_tree,
    set_attributes,
)

TYPE_CHECKING = False  # `typing` would take a tenth of the launcher's start
if TYPE_CHECKING:
    from typing import Any

GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES)


def open_unlinked(paths: list[bytes]) -> list[int]:
    """Return a descriptor for each root that exists; the caller closes them before the command runs."""
    opened: list[int] = []
    for path in paths:
        try:
            opened.append(open_place(path, os.O_DIRECTORY))
        except OSError as error:
            if error.errno not in GONE:
                raise
    return opened


PER_COMMAND = CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC

DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
LINKS = (("fd", "/proc/self/fd"), ("stdin", "/proc/self/fd/0"), ("stdout", "/proc/self/fd/1"))
MORE_LINKS = (("stderr", "/proc/self/fd/2"), ("ptmx", "pts/ptmx"))

KERNEL_SECRETS = (b"kcore", b"keys", b"timer_list", b"latency_stats", b"sched_debug")
"""Files below /proc that user 0 can read; /dev/null is mounted over them."""

SHARED_MEMORY = b"mode=1777,size=25%"


def unshare(network: bool) -> None:
    """Make new user, mount and uts namespaces, and a network namespace if the network is off."""
    call("unshare", CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWUTS | (0 if network else CLONE_NEWNET))


def write_maps(pid: int) -> None:
    """Map every user and group that this process may map to itself; called by the parent of `pid`."""
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
    set_attributes(b"/dev", add=ATTR_RDONLY)


def enter(server_home: bytes, secrets: list[bytes]) -> home.ShownHome | None:
    """Mount, in a new process 1, its own /proc, terminals and shared memory, and the home without secrets."""
    # Read-only like the rest: for /proc/sys, user 0 of this namespace counts as user 0 of the host.
    mount(b"proc", b"/proc", b"proc", MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_RDONLY)
    if os.geteuid() == 0:
        for name in KERNEL_SECRETS:
            home.cover(b"/proc/" + name)
    mount(b"shm", b"/dev/shm", b"tmpfs", MS_NOSUID | MS_NODEV, SHARED_MEMORY)
    mount(b"devpts", b"/dev/pts", b"devpts", MS_NOSUID | MS_NOEXEC, b"newinstance,ptmxmode=0666,mode=620")
    return home.show(server_home, secrets)


def open_roots(confine: dict[str, Any], shown: home.ShownHome | None) -> list[int]:
    """Make the roots of this command writable, except for the protected paths in them, and hide the secrets. Returns
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
    if not current:
        home.hide(confine["home"], confine["secrets"])
    protected = frozenset(confine["protected"])
    # Upper directories first, because a mount hides earlier mounts below it.
    for path in sorted({*protected, *confine["pinned"]}, key=lambda path: path.split(b"/")):
        pin(path, protected=path in protected)
    return roots


def _make_writable(root: int) -> None:
    tree = open_tree(b"", AT_RECURSIVE | AT_EMPTY_PATH, root)
    try:
        set_attributes(b"", clear=ATTR_RDONLY, flags=AT_RECURSIVE | AT_EMPTY_PATH, at=tree)
    except PermissionError:
        # A mount below is read-only on the host and stays so; only the root itself becomes writable.
        set_attributes(b"", clear=ATTR_RDONLY, flags=AT_EMPTY_PATH, at=tree)
    attach_at(tree, root)


def pin(path: bytes, *, protected: bool) -> None:
    """Mount `path` on itself: a mount point can be neither renamed nor removed. A protected path becomes read-only as
    well. A link is not followed.
    """
    try:
        place = open_place(path)
    except (FileNotFoundError, NotADirectoryError):
        return  # removed since the plan was made: a placeholder of another command, or by the user
    try:
        tree = open_tree(b"", AT_RECURSIVE | AT_EMPTY_PATH, place)
        if protected:
            set_attributes(b"", add=ATTR_RDONLY, flags=AT_RECURSIVE | AT_EMPTY_PATH, at=tree)
        attach_at(tree, place)
    except FileNotFoundError:
        if os.fstat(place).st_nlink:  # otherwise it was removed at this moment
            raise
    finally:
        os.close(place)
