"""How a placeholder directory is distinguished from others: the launcher makes it where a protected name is missing."""

from __future__ import annotations

import os
import stat

MARK_NS = 318_398_706 * 1_000_000_000
"""Its time stamp, a moment in 1980: every file system can store it, and no other directory has it by chance."""


def is_placeholder(path: str) -> bool:
    """Tell whether the path is an empty directory with the mark. One that holds something is not, whatever its time
    stamp: a command can set that.
    """
    try:
        status = os.lstat(path)
        return status.st_mtime_ns == MARK_NS and stat.S_ISDIR(status.st_mode) and not os.listdir(path)
    except OSError:
        return False
