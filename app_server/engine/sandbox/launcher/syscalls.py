"""System calls for which Python has no function, and their numbers on both machines."""

from __future__ import annotations

import ctypes
import os

X86_64 = "x86_64"
MACHINE = os.uname().machine

CLONE_NEWNET = 0x40000000
SIGCHLD = 17
AT_FDCWD = -100
RESOLVE_NO_SYMLINKS = 0x04


_libc = ctypes.CDLL(None, use_errno=True)
_syscall = getattr(_libc, "syscall")  # noqa: B009 - the one variadic entry; typed by hand below
_syscall.restype = ctypes.c_long

NUMBERS: dict[str, tuple[int, int]] = {
    "clone": (56, 220), "capset": (126, 91), "mount": (165, 40), "umount2": (166, 39),
    "seccomp": (317, 277), "unshare": (272, 97), "open_tree": (428, 428), "move_mount": (429, 429),
    "pivot_root": (155, 41), "mount_setattr": (442, 442), "landlock_create_ruleset": (444, 444),
    "landlock_add_rule": (445, 445),
    "landlock_restrict_self": (446, 446), "prctl": (157, 167), "connect": (42, 203),
    "pidfd_getfd": (438, 438), "openat2": (437, 437),
}  # fmt: skip


class OpenHow(ctypes.Structure):
    """struct open_how"""

    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def call(name: str, *arguments: object) -> int:
    """Make one system call; raises OSError if it fails. Integers are passed as longs, bytes and pointers unchanged."""
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


def open_place(path: bytes, flags: int = 0) -> int:
    """Return a descriptor of the file at the absolute `path`, only for use as a location. Raises OSError with ELOOP if
    a component before the last is a symbolic link; if the last one is a link, the link itself is opened.
    """
    how = OpenHow(os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC | flags, 0, RESOLVE_NO_SYMLINKS)
    return call("openat2", AT_FDCWD, path, ctypes.byref(how), ctypes.sizeof(how))


def clone(flags: int) -> int:
    """Fork into new namespaces; return 0 in the child. It is sound only in a process of one thread."""
    return call("clone", flags | SIGCHLD, 0, 0, 0, 0)
