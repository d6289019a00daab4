"""Which Landlock rights this kernel knows and what roots are granted, as numbers for the launcher.

Wraps the `landlock` package, the one place that imports it: it names the rights and knows since when each
exists. What it lacks is added here: TCP rights (ABI 4) and scopes for signals and abstract sockets (ABI
6).
"""

from __future__ import annotations

import ctypes
from functools import cache

try:
    import landlock
except ImportError:  # another system
    landlock = None

TCP_ABI = 4
TCP_BIND_CONNECT = 0b11
SCOPE_ABI = 6
SCOPE_ABSTRACT_AND_SIGNALS = 0b11
SIZES = {1: 8, 4: 16, 6: 24}
"""Bytes of the attributes that each ABI understands."""


def abi() -> int:
    """The kernel's Landlock version; 0 where there is none."""
    if landlock is None:
        return 0
    ctypes.set_errno(0)  # the package takes an old error of this thread for its own
    try:
        return int(landlock.landlock_abi_version())
    except landlock.LandlockError:
        return 0


@cache
def rights(*, network: bool, version: int) -> dict[str, int] | None:
    """What is handled, what roots and /dev are granted; None where the kernel has no Landlock.

    Reading and executing are not handled: everything may be read. Devices are never made.
    """
    if landlock is None or version < 1:
        return None
    access = landlock.FSAccess
    everything = access.all()
    handled = everything & ~(access.EXECUTE | access.READ_FILE | access.READ_DIR)
    granted = handled & ~(access.MAKE_CHAR | access.MAKE_BLOCK | access.IOCTL_DEV)
    return {
        "fs": int(handled),
        "grant": int(granted),
        "device": int(granted | (handled & access.IOCTL_DEV)),
        "net": TCP_BIND_CONNECT if version >= TCP_ABI and not network else 0,
        "scoped": SCOPE_ABSTRACT_AND_SIGNALS if version >= SCOPE_ABI else 0,
        "size": next(size for since, size in sorted(SIZES.items(), reverse=True) if version >= since),
    }
