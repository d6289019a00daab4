"""The Landlock rights of the kernel: those that a confined command is denied, and those that are granted to it by path.

This module alone imports the `landlock` package. The package has the rights for files up to ABI 5 and asks the kernel
for its version. Rights that it lacks are in the table `LATER_RIGHTS`. The server chooses rights here, and the launcher
makes the system calls, since it runs without site-packages.
"""

from __future__ import annotations

import ctypes
from functools import cache
from importlib import import_module
from typing import Any, Literal

from msgspec import Struct

from app_server.engine.support.lazy import Lazy

_LANDLOCK: Lazy[Any] = Lazy(lambda: import_module("landlock"))


class LaterRight(Struct, frozen=True):
    """Rights that the package does not know."""

    abi: int
    """First version of the kernel's interface that has the rights."""
    member: Literal["fs", "net", "scoped"]
    """Member of `struct landlock_ruleset_attr` to which the bits belong."""
    bits: int


LATER_RIGHTS = (
    LaterRight(4, "net", (1 << 0) | (1 << 1)),  # BIND_TCP, CONNECT_TCP
    LaterRight(6, "scoped", (1 << 0) | (1 << 1)),  # ABSTRACT_UNIX_SOCKET, SIGNAL
    LaterRight(9, "fs", 1 << 16),  # RESOLVE_UNIX
    LaterRight(10, "net", (1 << 2) | (1 << 3)),  # BIND_UDP, CONNECT_SEND_UDP
)
"""No rule grants any of these. Sockets with a path are connected by the socket broker, outside of the command's domain,
and the kernel itself lets a command connect to sockets that it has made.
"""

SIZES = {1: 8, 4: 16, 6: 24}
"""Size of the attributes that each ABI understands, in bytes, by ABI. Later members are not used."""


class LandlockRights(Struct, frozen=True):
    """Rights in the form of the kernel's attributes: `fs`, `net` and `scoped` are denied except by rules."""

    fs: int
    net: int
    scoped: int
    size: int
    """Size of the attributes, in bytes."""
    grant: int
    """Rights that are granted below writable roots."""
    device: int
    """Rights that are granted below a private /dev."""
    read: int
    """Rights that are granted below visible paths; 0 if everything may be read."""


def landlock_abi() -> int:
    """Return the kernel's Landlock version; 0 if it has none."""
    try:
        landlock = _LANDLOCK.get()
    except ImportError:  # another system
        return 0
    ctypes.set_errno(0)  # the package would mistake an old error of this thread for its own
    try:
        return int(landlock.landlock_abi_version())
    except landlock.LandlockError:
        return 0


@cache
def landlock_rights(*, network: bool, version: int, reading: bool = False) -> LandlockRights | None:
    """Return the rights for a command. None if the kernel has no Landlock.

    Reading and executing are denied with `reading` only; otherwise everything may be read. The right to make devices
    is never granted.
    """
    if version < 1:
        return None
    access = _LANDLOCK.get().FSAccess
    everything = access.all()
    reads = access.EXECUTE | access.READ_FILE | access.READ_DIR
    denied = everything if reading else everything & ~reads
    granted = denied & ~(access.MAKE_CHAR | access.MAKE_BLOCK | access.IOCTL_DEV)
    return LandlockRights(
        fs=int(denied) | _later("fs", version),
        net=0 if network else _later("net", version),
        scoped=_later("scoped", version),
        size=next(size for abi, size in sorted(SIZES.items(), reverse=True) if version >= abi),
        grant=int(granted),
        device=int(granted | (denied & access.IOCTL_DEV)),
        read=int(reads) if reading else 0,
    )


def _later(member: str, version: int) -> int:
    return sum(right.bits for right in LATER_RIGHTS if right.member == member and version >= right.abi)
