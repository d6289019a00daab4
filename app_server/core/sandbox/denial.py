"""Does a failed command look as if the sandbox stood in its way? A guess, to offer a retry. Pure."""

from __future__ import annotations

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
    """True for a failure whose output has a tell-tale word, or that the filter ended."""
    if exit_code == 0:
        return False
    if any(word in text for text in (stderr.lower(), stdout.lower()) for word in KEYWORDS):
        return True
    return exit_code not in USUAL_FAILURES and exit_code == BAD_SYSTEM_CALL
