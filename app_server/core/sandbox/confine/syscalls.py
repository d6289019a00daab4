"""The system calls that Python has no function for, and their numbers on both machines."""

from __future__ import annotations

import ctypes
import os

X86_64 = "x86_64"
MACHINE = os.uname().machine

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000
SIGCHLD = 17

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REC, MS_PRIVATE = 1, 2, 4, 8, 16384, 1 << 18

MNT_DETACH = 2
ATTR_RDONLY, ATTR_NOSUID, ATTR_NODEV = 1, 2, 4
AT_FDCWD = -100
AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH, AT_RECURSIVE = 0x100, 0x1000, 0x8000
OPEN_TREE_CLONE, OPEN_TREE_CLOEXEC = 1, os.O_CLOEXEC
MOVE_MOUNT_F_EMPTY_PATH, MOVE_MOUNT_T_EMPTY_PATH = 0x04, 0x40
RESOLVE_NO_SYMLINKS = 0x04

PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_SET_SECUREBITS, PR_SET_CHILD_SUBREAPER = 4, 24, 28, 36
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, PR_CAP_AMBIENT = 38, 22, 47

_libc = ctypes.CDLL(None, use_errno=True)
_syscall = getattr(_libc, "syscall")  # noqa: B009 - the one variadic entry; typed by hand below
_syscall.restype = ctypes.c_long

NUMBERS: dict[str, tuple[int, int]] = {
    "clone": (56, 220), "capset": (126, 91), "mount": (165, 40), "umount2": (166, 39),
    "seccomp": (317, 277), "unshare": (272, 97), "open_tree": (428, 428), "move_mount": (429, 429),
    "mount_setattr": (442, 442), "landlock_create_ruleset": (444, 444), "landlock_add_rule": (445, 445),
    "landlock_restrict_self": (446, 446), "prctl": (157, 167), "connect": (42, 203),
    "pidfd_getfd": (438, 438), "openat2": (437, 437),
}  # fmt: skip


class Attributes(ctypes.Structure):
    """struct mount_attr"""

    _fields_ = (
        ("attr_set", ctypes.c_uint64),
        ("attr_clr", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    )


class OpenHow(ctypes.Structure):
    """struct open_how"""

    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def call(name: str, *arguments: object) -> int:
    """Make one system call; OSError where it fails. Integers are passed as longs, bytes and pointers as they
    are.
    """
    number = NUMBERS[name][0 if MACHINE == X86_64 else 1]
    passed = [ctypes.c_long(one) if isinstance(one, int) else one for one in arguments]
    result = int(_syscall(ctypes.c_long(number), *passed))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")
    return result


def prctl(option: int, *arguments: int) -> int:
    padded = [*arguments, 0, 0, 0, 0][:4]
    return call("prctl", option, *padded)


def mount(source: bytes, target: bytes, kind: bytes | None, flags: int, data: bytes | None = None) -> None:
    call("mount", source, target, kind, flags, data)


def set_attributes(path: bytes, *, add: int = 0, clear: int = 0, flags: int = 0, at: int = AT_FDCWD) -> None:
    """Call mount_setattr(2) on the mount at `path`, or on the one that the descriptor `at` stands for."""
    attributes = Attributes(add, clear, 0, 0)
    call("mount_setattr", at, path, flags, ctypes.byref(attributes), ctypes.sizeof(attributes))


def open_place(path: bytes, flags: int = 0) -> int:
    """Return a descriptor of what is at the absolute `path`, for use as a place only. OSError with ELOOP where a
    component before the last is a symbolic link; a last one is opened as the link that it is.
    """
    how = OpenHow(os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC | flags, 0, RESOLVE_NO_SYMLINKS)
    return call("openat2", AT_FDCWD, path, ctypes.byref(how), ctypes.sizeof(how))


def open_tree(path: bytes, flags: int = 0, at: int = AT_FDCWD) -> int:
    """Return a detached copy of the mount at `path`, from the folder `at` where it is relative; as a descriptor."""
    return call("open_tree", at, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | flags)


def attach(tree: int, path: bytes) -> None:
    """Mounts a detached tree at `path`, a last link not followed, and closes the descriptor."""
    try:
        call("move_mount", tree, b"", AT_FDCWD, path, MOVE_MOUNT_F_EMPTY_PATH)
    finally:
        os.close(tree)


def attach_at(tree: int, place: int) -> None:
    """Mounts a detached tree on what the descriptor `place` stands for, and closes `tree`."""
    try:
        call("move_mount", tree, b"", place, b"", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH)
    finally:
        os.close(tree)


def clone(flags: int) -> int:
    """Fork into new namespaces: 0 in the child. Sound only in a process of one thread."""
    return call("clone", flags | SIGCHLD, 0, 0, 0, 0)
