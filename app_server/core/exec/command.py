"""What is passed between whoever wants a command run and the launcher: what to run, what came of it.

Expected outcomes are data here: an exit code, a time limit, a likely denial. `LaunchError` and
`SandboxUnavailable` (core.errors) are raised where no command ran at all.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import field

from app_server.core.sandbox.plan import SandboxPlan
from protocol.records import dataclass

TIMEOUT_EXIT_CODE = 124
"""What a command that was ended for its time limit reports, as timeout(1) does."""

SIGNAL_EXIT_BASE = 128
"""A command ended by signal n reports this plus n, as shells do."""


class Stream(enum.StrEnum):
    STDOUT = "stdout"
    STDERR = "stderr"


OnOutput = Callable[[Stream, bytes], None]
"""Is told of output as it comes, in the order it was read. It must not block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandSpec:
    argv: tuple[str, ...]
    cwd: str
    exact_cwd: bool = False
    """`cwd` is a real path: where a link has come into it since, nothing runs."""
    env: Mapping[str, str] = field(repr=False)
    timeout_ms: int | None = None
    """None: no limit."""
    sandbox: SandboxPlan | None = None
    """None: not confined (danger-full-access, or an approved escalation)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecResult:
    exit_code: int
    stdout: bytes
    stderr: bytes
    aggregated: bytes
    """Both streams as they came, kept to a cap of their own."""
    duration_s: float
    timed_out: bool = False
    denied: bool = False
    """The sandbox is the likely reason for the failure."""
