"""Capabilities and process flags: what a confined process gives up before it runs anything. Linux."""

from __future__ import annotations

import contextlib
import ctypes

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
"""CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER: root's way with the files of others. Not FSETID, with which a setuid
file would stay one while it is written.
"""
TRACING = 1 << 19
"""SYS_PTRACE: a look at the memory and the descriptors of processes in the same user namespace."""

_Header, _Sets = ctypes.c_uint32 * 2, ctypes.c_uint32 * 6  # made here: each command would make the types anew

SECURE_BITS = 0x0F
"""NOROOT and NO_SETUID_FIXUP, both locked: user id 0 gains nothing at exec."""


def hide() -> None:
    """Nothing of the same user may read this process' memory, environment or descriptors."""
    prctl(PR_SET_DUMPABLE, 0)


def show() -> None:
    """Undoes `hide`, so that the files below /proc/PID belong to the user: their maps are to be written."""
    prctl(PR_SET_DUMPABLE, 1)


def become_reaper() -> None:
    """Orphans among the descendants become children of this process."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)


def forgo() -> None:
    """No program executed from here on gains a privilege; only those over files may be kept at all."""
    with contextlib.suppress(OSError):  # without SETPCAP there are no capabilities to be gained either
        for number in range(LAST_CAPABILITY + 1):
            if not FILE_CAPABILITIES >> number & 1:
                prctl(PR_CAPBSET_DROP, number)
    prctl(PR_SET_NO_NEW_PRIVS, 1)


def drop_capabilities() -> None:
    """Gives up every capability, for this process and whatever it executes."""
    with contextlib.suppress(OSError):  # needs SETPCAP; the empty sets below hold without it
        prctl(PR_SET_SECUREBITS, SECURE_BITS)
    with contextlib.suppress(OSError):
        prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    _set_capabilities(0)


def keep_file_capabilities() -> None:
    """Gives up every capability but those over files, which also survive exec as user 0."""
    _set_capabilities(FILE_CAPABILITIES)


def keep(mask: int) -> None:
    """Gives up every other capability of this thread, as long as it executes nothing."""
    _set_capabilities(mask)


def _set_capabilities(mask: int) -> None:
    header, sets = _Header(CAPABILITY_VERSION_3, 0), _Sets(mask, mask, 0, 0, 0, 0)
    call("capset", ctypes.byref(header), ctypes.byref(sets))
