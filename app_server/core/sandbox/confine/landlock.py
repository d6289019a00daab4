"""Landlock: write rights for the roots only; TCP and scopes if the kernel supports them. Linux.

The server chooses the rights (`landlock_rights`, which wraps the `landlock` package). The three system calls are made
here, since the launcher runs without site-packages and the package supports neither TCP nor scopes.
"""

from __future__ import annotations

import ctypes
import os

from app_server.core.sandbox.confine.syscalls import call

TYPE_CHECKING = False  # `typing` would take a tenth of the launcher's start
if TYPE_CHECKING:
    from typing import Any

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


def restrict(rights: dict[str, int], writable: list[int], devices: list[bytes]) -> None:
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
