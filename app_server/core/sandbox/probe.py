"""The sandbox levels, the probe that tests them, and the evaluation of its output. Pure; `exec.probing` runs the probe.

The level is not derived from kernel versions and settings. Instead a probe runs under each level and tries what must
fail. The server uses the first level under which everything that matters does fail.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence, Set
from typing import Literal

from msgspec import Struct

from app_server.core import remedies

SCRIPT = """\
import errno, os, sys
import _socket
folder, other = sys.argv[1], int(sys.argv[2])
def attempt(name, act):
    try:
        act()
    except OSError as error:
        if errno.errorcode.get(error.errno) in SHORT:
            sys.exit('short of something: ' + error.strerror)
        return
    print(name)
SHORT = sys.argv[4].split()
def write():
    path = folder + '/' + sys.argv[3]
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    os.unlink(path)
attempt('write', write)
attempt('metadata', lambda: os.chmod(folder, os.stat(folder).st_mode & 0o7777))
attempt('network', lambda: _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM))
attempt('datagram', lambda: _socket.socket(_socket.AF_UNIX, _socket.SOCK_DGRAM))
attempt('signal', lambda: os.kill(other, 0))
attempt('see', lambda: os.stat('/proc/%d' % other))
print('done')
"""
"""Tries each forbidden action once and prints those that succeeded, if possible without a lasting effect. It exits
without `done` if an action fails for a shortage, since that proves nothing.
"""

REFUSALS = frozenset(
    {
        *(errno.EPERM, errno.EACCES, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP),
        *(errno.ENOENT, errno.ENODEV, errno.EROFS, errno.EPROTONOSUPPORT, errno.EAFNOSUPPORT),
    }
)
"""Errors of a kernel that cannot or may not confine in this way: forbidden, unknown, or a file system such as /proc is
missing. Any other error proves nothing about the machine.
"""

INDISPENSABLE = frozenset({"write", "network", "datagram"})
"""A probe that can do one of these is not confined at all."""

GAPS = {
    "metadata": "mode, owner, times and attributes of files outside the workspace can be changed",
    "signal": "other processes of the user can be signalled",
    "see": "other processes are visible",
    "fences": "protected folders inside the workspace (.git, .codex, .agents) can be written",
    "secrets": "the stored credentials of the server can be read",
}


class SandboxState(Struct, frozen=True):
    """Confinement that works on this machine."""

    level: Literal["full", "degraded", "none"]
    reason: str = ""
    """Why the level is not full, for the user; empty if it is."""
    gaps: tuple[str, ...] = ()
    """What the degraded level does not cover, for the user."""
    landlock_abi: int = 0

    @property
    def warning(self) -> str | None:
        """Return the warning for the client; None if everything is covered."""
        if self.level == "full":
            return None
        if self.level == "none":
            return str(remedies.no_sandbox(self.reason))
        return str(remedies.weaker_sandbox(self.reason, "; ".join(self.gaps)))


class SandboxLayer(Struct, frozen=True):
    """One part of the sandbox, tried alone as far as it can be."""

    name: str
    problem: str | None
    """Why it does not hold; None if it does."""


def layers(
    namespaces: tuple[str, str], landlock: tuple[str, str] | None, landlock_abi: int
) -> tuple[SandboxLayer, ...]:
    """Return the layers by two probes, each as its output and the reason if the kernel refused to confine it: in
    namespaces without Landlock, and with Landlock without namespaces (None: the kernel has no Landlock). Both have
    seccomp.
    """
    alone, refused = namespaces
    problem = refused or judge_full(alone)
    found = [SandboxLayer("namespaces", problem)]
    if landlock is None:
        found.append(SandboxLayer("Landlock", "the kernel has none"))
    else:
        output, refused = landlock
        problem = refused or _could(output, {"write"})
        found.append(SandboxLayer(f"Landlock (ABI {landlock_abi})", problem))
        alone = output or alone
    problem = _could(alone, {"network", "datagram"})
    return (*found, SandboxLayer("seccomp", problem))


def completed(output: str) -> bool:
    """Tell whether the probe tried everything; otherwise its output proves nothing."""
    return "done" in output.split()


def is_refusal(code: int | None, *, limits: Sequence[str]) -> bool:
    """Tell whether a failure to confine is a property of the machine. `limits` are the kernel's limits of namespaces
    per user: a limit of 0 gives the same error as an exhausted one.
    """
    return code in REFUSALS or (code == errno.ENOSPC and "0" in limits)


def judge_full(output: str) -> str | None:
    """Judge a probe in namespaces: None if it could do nothing, otherwise the reason to reject this level."""
    return _could(output, INDISPENSABLE | GAPS.keys())


def judge_degraded(output: str) -> str | None:
    """Judge a probe without namespaces: None if it could do nothing indispensable."""
    return _could(output, INDISPENSABLE)


def gaps(output: str) -> tuple[str, ...]:
    """Return what the degraded level does not cover, from the probe's output and by design."""
    could = set(output.split())
    always = {"metadata", "fences", "secrets"}
    return tuple(text for name, text in GAPS.items() if name in could | always)


def _could(output: str, forbidden: Set[str]) -> str | None:
    if not completed(output):
        return "a test command did not run in it"
    could = sorted(set(output.split()) & forbidden)
    return f"a test command could still: {', '.join(could)}" if could else None
