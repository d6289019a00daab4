"""Applies the layers in order: namespaces, capabilities, Landlock, seccomp. Linux.

Runs in the process to be confined. If a layer fails, it raises OSError and the command does not run.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from app_server.core.sandbox.confine import landlock, namespaces, places, privileges, seccomp
from app_server.core.sandbox.confine.home import ShownHome
from app_server.core.sandbox.confine.light_dataclasses import dataclass, replace
from app_server.core.sandbox.confine.seccomp import Filter, Part

TYPE_CHECKING = False  # `typing` would take a tenth of the launcher's start
if TYPE_CHECKING:
    from typing import Any

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
    seccomp.install(Filter(network=network, namespaces=True, part=Part.AHEAD))
    rest = Filter(network=network, namespaces=True, part=Part.REST)
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
        landlock.restrict(confine["landlock"], roots, DEVICE_FOLDER)
    for root in roots:
        os.close(root)  # no command may inherit it
    try:
        return seccomp.install_listening(rest.listening)
    except OSError:  # without a broker, commands can only use socketpair(2)
        seccomp.install_program(rest.silent)
        return None


def without_namespaces(confine: dict[str, Any]) -> Callable[[], None]:
    """The function that a command without namespaces runs between fork and exec."""

    def apply() -> None:
        privileges.forgo_new_privileges()
        privileges.drop_capabilities()
        roots = places.open_roots(confine["roots"])
        landlock.restrict(confine["landlock"], roots, HOST_DEVICES)
        for root in roots:
            os.close(root)
        seccomp.install(Filter(confine["network"], namespaces=False, read_only=not roots))

    return apply
