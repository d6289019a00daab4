"""Where a path really leads, and by which symbolic links. Looks at the disk, and changes nothing."""

from __future__ import annotations

import os
import stat

from protocol.records import dataclass

MAX_LINKS = 40
"""As the kernel has it; more than that is a loop."""


@dataclass(frozen=True, slots=True)
class ResolvedPath:
    real: str
    """Absolute, without links. What does not exist is kept as it is named."""
    links: tuple[str, ...] = ()
    """Every link that was followed, by the real path of its folder. Whoever changes one leads the path elsewhere."""


def resolve(path: str) -> ResolvedPath | None:
    """None where the path is not absolute, cannot be followed to its end or is no path at all."""
    if not path.startswith("/"):
        return None
    real, links, left = "", list[str](), path.split("/")[::-1]
    while left:
        name = left.pop()
        if name in ("", "."):
            continue
        if name == "..":
            real = real.rpartition("/")[0]
            continue
        here = f"{real}/{name}"
        try:
            target = os.readlink(here) if stat.S_ISLNK(os.lstat(here).st_mode) else None
        except (FileNotFoundError, NotADirectoryError):
            target = None
        except (OSError, ValueError):
            return None
        if target is None:
            real = here
            continue
        links.append(here)
        if len(links) > MAX_LINKS:
            return None
        if target.startswith("/"):
            real = ""
        left += target.split("/")[::-1]
    return ResolvedPath(real or "/", tuple(links))


def exists(path: str) -> bool:
    """lexists without the exception that it makes and drops for each name that is missing."""
    if os.access in os.supports_follow_symlinks:
        return os.access(path, os.F_OK, follow_symlinks=False)
    return os.path.lexists(path)
