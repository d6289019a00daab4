"""The layers in their order: namespaces, capabilities, Landlock, seccomp. Linux.

Runs in the process to be confined. Any layer that fails raises OSError and the command does not run.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from app_server.core.sandbox.confine import landlock, namespaces, places, privileges, seccomp
from app_server.core.sandbox.confine.home import ShownHome
from app_server.core.sandbox.confine.seccomp import Filter, Part

DEVICE_FOLDER = [b"/dev"]
"""Inside namespaces /dev is private: all of it may be written."""

HOST_DEVICES = [b"/dev/null", b"/dev/zero", b"/dev/full", b"/dev/random", b"/dev/urandom", b"/dev/tty"]


def in_parent(*, network: bool) -> None:
    """Confines the parent that commands are forked from, but for what it and they still need to make their worlds."""
    privileges.forgo()
    seccomp.install(Filter(network=network, namespaces=True, part=Part.AHEAD))
    for broker in (True, False):
        seccomp.prepare(Filter(network=network, namespaces=True, broker=broker, part=Part.REST))


def with_namespaces(
    confine: dict[str, Any], environment: dict[bytes, bytes], shown: ShownHome | None
) -> int | None:
    """Confines process 1 of a command's namespaces, which `in_parent` has begun. `environment` is what the command will
    get; `shown` is what came of entering them. Gives the descriptor that the socket broker needs; None where there is
    no broker on this machine.
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
        os.close(root)  # no command may come by it
    rest = Filter(network=confine["network"], namespaces=True, broker=True, part=Part.REST)
    try:
        return seccomp.install_listening(rest)
    except OSError:  # no broker then, and only pairs of unix sockets
        seccomp.install(replace(rest, broker=False))
        return None


def without_namespaces(confine: dict[str, Any]) -> Callable[[], None]:
    """What a command does to itself between fork and exec where there are no namespaces."""

    def apply() -> None:
        privileges.forgo()
        privileges.drop_capabilities()
        roots = places.open_roots(confine["roots"])
        landlock.restrict(confine["landlock"], roots, HOST_DEVICES)
        for root in roots:
            os.close(root)
        seccomp.install(Filter(confine["network"], namespaces=False, read_only=not roots))

    return apply
