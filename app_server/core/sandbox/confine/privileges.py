"""Capabilities and process flags that a confined process gives up before it executes anything. Linux."""

from __future__ import annotations

import ctypes

from app_server.core.sandbox.confine.light import suppress
from app_server.core.sandbox.confine.syscalls import (
    PR_CAP_AMBIENT,
    PR_CAPBSET_DROP,
    PR_SET_CHILD_SUBREAPER,
    PR_SET_DUMPABLE,
    PR_SET_NO_NEW_PRIVS,
    PR_SET_SECUREBITS,
    call,
    prctl,
)

CAPABILITY_VERSION_3 = 0x20080522
LAST_CAPABILITY = 63
PR_CAP_AMBIENT_CLEAR_ALL = 4
FILE_CAPABILITIES = (1 << 0) | (1 << 1) | (1 << 2) | (1 << 3)
"""CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER: root's access to files of other users. Not FSETID, with which a setuid
file would keep its bit when it is written.
"""
TRACING = 1 << 19
"""SYS_PTRACE: access to the memory and the descriptors of processes in the same user namespace."""

# At module level: otherwise each command would create the types again.
_Header, _Sets = ctypes.c_uint32 * 2, ctypes.c_uint32 * 6

SECURE_BITS = 0x0F
"""NOROOT and NO_SETUID_FIXUP, both locked: user id 0 gains nothing at exec."""


def hide() -> None:
    """Deny other processes of the same user access to this process's memory, environment and descriptors."""
    prctl(PR_SET_DUMPABLE, 0)


def show() -> None:
    """Undo `hide`, so that the files below /proc/PID belong to the user and the uid and gid maps can be written."""
    prctl(PR_SET_DUMPABLE, 1)


def become_reaper() -> None:
    """Orphans among the descendants become children of this process."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)


def forgo_new_privileges() -> None:
    """Let no program executed from here on gain a privilege. Only file capabilities remain in the bounding set."""
    with suppress(OSError):  # without SETPCAP there are no capabilities to be gained either
        for number in range(LAST_CAPABILITY + 1):
            if not FILE_CAPABILITIES >> number & 1:
                prctl(PR_CAPBSET_DROP, number)
    prctl(PR_SET_NO_NEW_PRIVS, 1)


def drop_capabilities() -> None:
    """Drop every capability of this process and of the programs that it executes."""
    with suppress(OSError):  # needs SETPCAP; the empty sets below hold without it
        prctl(PR_SET_SECUREBITS, SECURE_BITS)
    with suppress(OSError):
        prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    _set_capabilities(0)


def keep_file_capabilities() -> None:
    """Drop every capability except those for files, which also survive exec as user 0."""
    _set_capabilities(FILE_CAPABILITIES)


def keep_only(mask: int) -> None:
    """Drop every other capability of this thread, for threads that execute nothing."""
    _set_capabilities(mask)


def _set_capabilities(mask: int) -> None:
    header, sets = _Header(CAPABILITY_VERSION_3, 0), _Sets(mask, mask, 0, 0, 0, 0)
    call("capset", ctypes.byref(header), ctypes.byref(sets))
