"""The request to run a command, and its result.

Expected outcomes are data: an exit code, a time-out, a likely denial. `LaunchError` and `SandboxUnavailable`
(core.errors) mean that no command ran at all.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import field

from msgspec import Struct

from app_server.core.sandbox.plan import SandboxPlan
from protocol.records import dataclass

TIMEOUT_EXIT_CODE = 124
"""The exit code of a command that exceeded its time limit, as with timeout(1)."""

SIGNAL_EXIT_BASE = 128
"""Plus n, the exit code of a command that signal n ended, as in shells."""


class Stream(enum.StrEnum):
    STDOUT = "stdout"
    STDERR = "stderr"


OnOutput = Callable[[Stream, bytes], None]
"""Receives output as it arrives, in the order of the reads. It must not block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandSpec:
    argv: tuple[str, ...]
    cwd: str
    exact_cwd: bool = False
    """`cwd` is a real path; nothing runs if a part of it has become a link."""
    env: Mapping[str, str] = field(repr=False)
    timeout_ms: int | None = None
    """None: no limit."""
    sandbox: SandboxPlan | None = None
    """None: no sandbox (danger-full-access, or an approved escalation)."""


class ExecResult(Struct, frozen=True, kw_only=True):
    exit_code: int
    stdout: bytes
    stderr: bytes
    aggregated: bytes
    """Both streams in order of arrival, with its own limit."""
    duration_s: float
    timed_out: bool = False
    denied: bool = False
    """The sandbox is the likely reason of the failure."""


KEYWORDS = (
    b"operation not permitted",
    b"permission denied",
    b"read-only file system",
    b"seccomp",
    b"sandbox",
    b"landlock",
    b"failed to write file",
)

USUAL_FAILURES = frozenset({2, 126, 127})
"""Wrong usage, not executable, not found: what shells and tools report without any sandbox."""

BAD_SYSTEM_CALL = 128 + 31
"""Killed by the system call filter."""


def looks_denied(exit_code: int, stdout: bytes, stderr: bytes) -> bool:
    """Tell whether a failure's output has a tell-tale word, or that the filter ended."""
    if exit_code == 0:
        return False
    if any(word in text for text in (stderr.lower(), stdout.lower()) for word in KEYWORDS):
        return True
    return exit_code not in USUAL_FAILURES and exit_code == BAD_SYSTEM_CALL
