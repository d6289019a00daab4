"""The program `apply_patch` for commands: the patch is its argument, or is read from stdin.

It parses, plans and writes a patch completely or not at all, like the tool. It has the rights of the command that runs
it, so the same sandbox protects the same paths. It requests no approval: that was decided for the command. It imports
only the standard library and this package, so that it starts quickly and inside any sandbox.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Sequence

from app_server.engine.workspace.patch.atomic_writer import UNINTERRUPTED, apply_document
from app_server.engine.workspace.patch.disk_files import DiskFiles
from app_server.engine.workspace.patch.parse import PatchError, os_reason, parse_patch
from app_server.engine.workspace.patch.planner import plan_patch
from app_server.engine.workspace.patch.write_steps import write_all

LONGEST = 64 * 1024 * 1024
"""Maximum size of a patch, in bytes. Standard input may be a device that never ends."""

FAILED, WRONG_USAGE = 1, 2

USAGE = "Usage: apply_patch PATCH, or the patch on standard input"


class UsageError(Exception):
    """The arguments contain no patch. The message explains the usage."""


def main(arguments: Sequence[str]) -> int:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        status, out, err = apply(_patch_text(arguments))
    except UsageError as error:
        status, out, err = WRONG_USAGE, "", f"{error}\n"
    except (PatchError, OSError) as error:
        reason = os_reason(error) if isinstance(error, OSError) else str(error)
        status, out, err = FAILED, "", f"{reason}\n"
    for number, text in ((1, out), (2, err)):
        # The reader of the output may be gone; the patch is applied nevertheless.
        with contextlib.suppress(OSError):
            write_all(number, text.encode("utf-8", "surrogateescape"))
    return status


def apply(text: str) -> tuple[int, str, str]:
    """Apply a patch; return exit status, stdout and stderr. Raises PatchError if the patch does not apply; then nothing
    is written.
    """
    plan = plan_patch(parse_patch(text), os.getcwd(), DiskFiles(None))
    if not plan.edits:
        raise PatchError("the patch is empty: no files were modified")
    # No recovery: this process may have more rights than a command that forged leftovers.
    document = plan.document(os.urandom(8).hex(), recover=False)
    signal.pthread_sigmask(signal.SIG_BLOCK, UNINTERRUPTED)
    return apply_document(document)


def _patch_text(arguments: Sequence[str]) -> str:
    match arguments:
        case [patch]:
            data = os.fsencode(patch)
        case []:
            data = _standard_input()
        case _:
            raise UsageError("apply_patch takes one argument")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise PatchError("the patch is not UTF-8 text") from error


def _standard_input() -> bytes:
    pieces: list[bytes] = []
    left = LONGEST
    while piece := os.read(0, 1 << 20):
        pieces.append(piece)
        left -= len(piece)
        if left < 0:
            raise PatchError(f"the patch is longer than {LONGEST} bytes")
    if not pieces:
        raise UsageError(USAGE)
    return b"".join(pieces)
