"""Applies the layers in order: namespaces, capabilities, Landlock, seccomp. Linux.

The module runs in the process to be confined. If a layer fails, it raises OSError and the command does not run.
Landlock itself is in this module: write rights for the roots only, sockets and scopes if the kernel supports them. The
server chooses the rights (`exec.landlock_rights`). This module makes the three system calls itself, since the launcher
runs without site-packages.
"""

from __future__ import annotations

import ctypes
import os
import stat

from app_server.engine.sandbox.launcher import namespaces, seccomp, view
from app_server.engine.sandbox.launcher.namespaces import ShownHome
from app_server.engine.sandbox.launcher.seccomp import AHEAD, REST, Filter
from app_server.engine.sandbox.launcher.stdlib_min import Any, Callable, suppress
from app_server.engine.sandbox.launcher.syscalls import call, prctl
from app_server.engine.support.light_dataclasses import dataclass, replace

PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_SET_SECUREBITS, PR_SET_CHILD_SUBREAPER = 4, 24, 28, 36
PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT = 38, 47

CAPABILITY_VERSION_3 = 0x20080522
LAST_CAPABILITY = 63
PR_CAP_AMBIENT_CLEAR_ALL = 4
FILE_CAPABILITIES = (1 << 0) | (1 << 1) | (1 << 2) | (1 << 3)
"""CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER: root's access to files of other users. FSETID is excluded: with it a
setuid file would keep its bit when it is written.
"""
TRACING = 1 << 19
"""SYS_PTRACE: access to the memory and the descriptors of processes in the same user namespace."""

# These types are created at module level; otherwise each command would create them again.
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
    """Make orphans among the descendants children of this process."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)


def forgo_new_privileges() -> None:
    """Ensure that no program executed from here on gains a privilege. Only file capabilities remain in the bounding
    set.
    """
    with suppress(OSError):  # without SETPCAP there are no capabilities that could be gained
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
    keep_only(0)


def keep_only(mask: int) -> None:
    """Drop all other capabilities of this thread. Capabilities for files survive exec as user 0, too."""
    header, sets = _Header(CAPABILITY_VERSION_3, 0), _Sets(mask, mask, 0, 0, 0, 0)
    call("capset", ctypes.byref(header), ctypes.byref(sets))


RULE_PATH_BENEATH = 1
FILE_RIGHTS = (1 << 0) | (1 << 1) | (1 << 2) | (1 << 14) | (1 << 15)
"""EXECUTE, WRITE_FILE, READ_FILE, TRUNCATE, IOCTL_DEV: the handled rights that a rule for a single file may grant."""


class RulesetAttributes(ctypes.Structure):
    """struct landlock_ruleset_attr"""

    _fields_ = (("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class PathBeneath(ctypes.Structure):
    """struct landlock_path_beneath_attr"""

    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def apply_landlock(
    rights: dict[str, int], writable: list[int], devices: list[bytes], visible: list[bytes]
) -> None:
    """Confine this thread and its future children; no_new_privs must be set. `writable` are descriptors of roots.
    `visible` are the only paths that may be read if reading is handled.
    """
    attributes = RulesetAttributes(rights["fs"], rights["net"], rights["scoped"])
    ruleset = call("landlock_create_ruleset", ctypes.byref(attributes), rights["size"], 0)
    try:
        for root in writable:
            _allow_below(ruleset, root, _for_kind(root, rights["grant"]))
        if rights["read"]:
            for path in visible:
                _allow(ruleset, path, rights["read"])
        for path in devices:
            _allow(ruleset, path, rights["fs"] & FILE_RIGHTS if not os.path.isdir(path) else rights["device"])
        call("landlock_restrict_self", ruleset, 0)
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: bytes, rights: int) -> None:
    try:
        parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return
    try:
        _allow_below(ruleset, parent, _for_kind(parent, rights))
    finally:
        os.close(parent)


def _for_kind(place: int, rights: int) -> int:
    """Return the subset of the rights that a rule for this folder or file may grant."""
    return rights if stat.S_ISDIR(os.fstat(place).st_mode) else rights & FILE_RIGHTS


def _allow_below(ruleset: int, parent: int, rights: int) -> None:
    rule: Any = PathBeneath(rights, parent)
    call("landlock_add_rule", ruleset, RULE_PATH_BENEATH, ctypes.byref(rule), 0)


DEVICE_FOLDER = [b"/dev"]
"""Writable device folder. Inside namespaces /dev is private, so all of it is writable."""

HOST_DEVICES = [b"/dev/null", b"/dev/zero", b"/dev/full", b"/dev/random", b"/dev/urandom", b"/dev/tty"]


@dataclass(frozen=True, slots=True)
class RestFilters:
    """Filters, as programs, that `in_parent` leaves for each command to install."""

    listening: seccomp.Program
    silent: seccomp.Program
    """Filter for commands without a broker."""


def in_parent(*, network: bool) -> RestFilters:
    """Confine the parent that forks commands, except for the calls with which it and the commands set up namespaces."""
    forgo_new_privileges()
    seccomp.install(Filter(network=network, namespaces=True, part=AHEAD))
    rest = Filter(network=network, namespaces=True, part=REST)
    return RestFilters(seccomp.program(replace(rest, broker=True)), seccomp.program(rest))


def with_namespaces(
    confine: dict[str, Any], environment: dict[bytes, bytes], shown: ShownHome | None, rest: RestFilters
) -> int | None:
    """Confine process 1 of a command's namespaces further than `in_parent` did. `environment` is the command's, `shown`
    the result of `namespaces.enter`, `rest` that of `in_parent` for the same network. Return the listener for the
    socket broker; None if the kernel has no support.
    """
    roots = namespaces.open_roots(confine, shown)
    roots += view.close(confine)
    if confine["visible"] is not None:
        view.enter_root(confine)
    if confine["private_temp"]:
        environment[b"TMPDIR"] = b"/dev/shm"
    if confine["foreign_files"]:
        keep_only(FILE_CAPABILITIES)
    else:
        drop_capabilities()
    if confine["landlock"] is not None:
        apply_landlock(confine["landlock"], roots, DEVICE_FOLDER, view.shown_places(confine))
    for root in roots:
        os.close(root)  # no command may inherit it
    try:
        return seccomp.install_listening(rest.listening)
    except OSError:  # without a broker, commands can only use socketpair(2)
        seccomp.install_program(rest.silent)
        return None


def without_namespaces(confine: dict[str, Any]) -> Callable[[], None]:
    """Return the function that a command without namespaces runs between fork and exec."""

    def apply() -> None:
        forgo_new_privileges()
        drop_capabilities()
        roots = namespaces.open_unlinked(confine["roots"])
        apply_landlock(confine["landlock"], roots, HOST_DEVICES, view.shown_places(confine))
        for root in roots:
            os.close(root)
        seccomp.install(Filter(confine["network"], namespaces=False, read_only=not roots))

    return apply
