"""What a sandbox level promises, and how a victim's words are judged. Pure; the runner plays the victim.

What the kernel really gives is not read from versions and settings: a victim is run under each way of
confining and tries what must not work. The first way under which it fails at everything that counts is
the one to use.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import Literal

from protocol.records import dataclass

VICTIM = """\
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
"""Tries each forbidden thing once, without effect where it can, and prints what it could do. What fails for a lack of
something was not tried: then it does not get to `done`.
"""

REFUSALS = frozenset(
    {
        *(errno.EPERM, errno.EACCES, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP),
        *(errno.ENOENT, errno.ENODEV, errno.EROFS, errno.EPROTONOSUPPORT, errno.EAFNOSUPPORT),
    }
)
"""What the kernel answers where it cannot or may not confine like this, now and later: forbidden, unknown, or a file
system such as /proc is not there. Anything else says nothing about the machine.
"""

INDISPENSABLE = frozenset({"write", "network", "datagram"})
"""Where the victim can do one of these, it was not confined at all."""

GAPS = {
    "metadata": "mode, owner, times and attributes of files outside the workspace can be changed",
    "signal": "other processes of the user can be signalled",
    "see": "other processes are visible",
    "fences": "protected folders inside the workspace (.git, .codex, .agents) can be written",
    "secrets": "the stored credentials of the server can be read",
}


@dataclass(frozen=True, slots=True)
class SandboxState:
    """How commands are confined on this machine."""

    level: Literal["full", "degraded", "none"]
    reason: str = ""
    """Why it is not full, in words for the user; empty where it is."""
    gaps: tuple[str, ...] = ()
    """What is not covered in the degraded mode, in words for the user."""
    landlock_abi: int = 0

    @property
    def warning(self) -> str | None:
        """What the client is to be told; None where everything is covered."""
        if self.level == "full":
            return None
        if self.level == "none":
            return f"Commands cannot be confined on this machine and are refused: {self.reason}"
        gaps = "; ".join(self.gaps)
        return (
            f"Commands run with a weaker sandbox ({self.reason}). Not covered: {gaps}. "
            "Refused: unix sockets, but for pairs."
        )


def completed(output: str) -> bool:
    """Whether the victim tried everything; if not, nothing follows from its words."""
    return "done" in output.split()


def is_refusal(code: int | None, *, limits: Sequence[str]) -> bool:
    """Whether a failure to confine belongs to the machine. `limits` are the kernel's numbers of namespaces that a user
    may have: none at all is answered like too many.
    """
    return code in REFUSALS or (code == errno.ENOSPC and "0" in limits)


def judge_full(output: str) -> str | None:
    """None where a victim in namespaces could do nothing; else what speaks against this way."""
    return _judge(output, frozenset(GAPS))


def judge_degraded(output: str) -> str | None:
    """None where a victim without namespaces could do nothing that counts."""
    return _judge(output, frozenset())


def gaps(output: str) -> tuple[str, ...]:
    """What the degraded mode does not cover, as the victim and the mode's nature have it."""
    could = set(output.split())
    always = {"metadata", "fences", "secrets"}
    return tuple(text for name, text in GAPS.items() if name in could | always)


def _judge(output: str, more: frozenset[str]) -> str | None:
    if not completed(output):
        return "a test command did not run in it"
    could = sorted(set(output.split()) & (INDISPENSABLE | more))
    return f"a test command could still: {', '.join(could)}" if could else None
