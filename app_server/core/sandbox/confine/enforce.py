"""Applies the layers in order: namespaces, capabilities, Landlock, seccomp. Linux.

Runs in the process to be confined. If a layer fails, it raises OSError and the command does not run. Landlock itself is
here: write rights for the roots only, TCP and scopes if the kernel supports them. The server chooses the rights
(`exec.probing`, which wraps the `landlock` package). The three system calls are made here, since the launcher runs
without site-packages and the package supports neither TCP nor scopes.
"""

from __future__ import annotations

import ctypes
import os

from app_server.core.sandbox.confine import namespaces, privileges, seccomp
from app_server.core.sandbox.confine.light import Any, Callable, dataclass, replace
from app_server.core.sandbox.confine.namespaces import ShownHome
from app_server.core.sandbox.confine.seccomp import AHEAD, REST, Filter
from app_server.core.sandbox.confine.syscalls import call

RULE_PATH_BENEATH = 1
FILE_RIGHTS = (1 << 1) | (1 << 14) | (1 << 15)
"""WRITE_FILE, TRUNCATE, IOCTL_DEV: the handled rights that a rule for a single file may grant."""


class RulesetAttributes(ctypes.Structure):
    """struct landlock_ruleset_attr"""

    _fields_ = (("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class PathBeneath(ctypes.Structure):
    """struct landlock_path_beneath_attr"""

    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def apply_landlock(rights: dict[str, int], writable: list[int], devices: list[bytes]) -> None:
    """Confine this thread and its future children; no_new_privs must be set. `writable` are descriptors of roots."""
    attributes = RulesetAttributes(rights["fs"], rights["net"], rights["scoped"])
    ruleset = call("landlock_create_ruleset", ctypes.byref(attributes), rights["size"], 0)
    try:
        for root in writable:
            _allow_below(ruleset, root, rights["grant"])
        for path in devices:
            _allow(ruleset, path, rights["fs"] & FILE_RIGHTS if not os.path.isdir(path) else rights["device"])
        call("landlock_restrict_self", ruleset, 0)
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: bytes, rights: int) -> None:
    try:
        parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        _allow_below(ruleset, parent, rights)
    finally:
        os.close(parent)


def _allow_below(ruleset: int, parent: int, rights: int) -> None:
    rule: Any = PathBeneath(rights, parent)
    call("landlock_add_rule", ruleset, RULE_PATH_BENEATH, ctypes.byref(rule), 0)


DEVICE_FOLDER = [b"/dev"]
"""Inside namespaces /dev is private, so all of it is writable."""

HOST_DEVICES = [b"/dev/null", b"/dev/zero", b"/dev/full", b"/dev/random", b"/dev/urandom", b"/dev/tty"]


@dataclass(frozen=True, slots=True)
class RestFilters:
    """What `in_parent` leaves for each command to install, as programs."""

    listening: seccomp.Program
    silent: seccomp.Program
    """Where there is no broker."""


def in_parent(*, network: bool) -> RestFilters:
    """Confine the parent that forks commands, except for the calls with which it and they set up namespaces."""
    privileges.forgo_new_privileges()
    seccomp.install(Filter(network=network, namespaces=True, part=AHEAD))
    rest = Filter(network=network, namespaces=True, part=REST)
    return RestFilters(seccomp.program(replace(rest, broker=True)), seccomp.program(rest))


def with_namespaces(
    confine: dict[str, Any], environment: dict[bytes, bytes], shown: ShownHome | None, rest: RestFilters
) -> int | None:
    """Confine process 1 of a command's namespaces further than `in_parent` did. `environment` is the command's, `shown`
    the result of `namespaces.enter`, `rest` that of `in_parent` for the same network. Returns the listener for the
    socket broker; None if the kernel has no support.
    """
    roots = namespaces.open_roots(confine, shown)
    if confine["private_temp"]:
        environment[b"TMPDIR"] = b"/dev/shm"
    if confine["foreign_files"]:
        privileges.keep_file_capabilities()
    else:
        privileges.drop_capabilities()
    if confine["landlock"] is not None:
        apply_landlock(confine["landlock"], roots, DEVICE_FOLDER)
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
        privileges.forgo_new_privileges()
        privileges.drop_capabilities()
        roots = namespaces.open_unlinked(confine["roots"])
        apply_landlock(confine["landlock"], roots, HOST_DEVICES)
        for root in roots:
            os.close(root)
        seccomp.install(Filter(confine["network"], namespaces=False, read_only=not roots))

    return apply
