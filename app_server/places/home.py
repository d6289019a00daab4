"""The server's home, as a path. Imports nothing: the proxy asks, whose whole start takes ten milliseconds."""

from __future__ import annotations

import os

TYPE_CHECKING = False  # `typing` takes as long as all that the proxy imports

if TYPE_CHECKING:
    from collections.abc import Mapping


def home_folder(environment: Mapping[str, str]) -> str:
    """Return the real path of `$CODEX_HOME`, or of `.codex` in the user's home directory. `~` is expanded: editors pass
    on what their settings say, without a shell.
    """
    named = environment.get("CODEX_HOME")
    base = environment.get("HOME") or os.path.expanduser("~")
    if named:
        of_user = named == "~" or named.startswith("~/")
        return os.path.realpath(base + named[1:] if of_user else os.path.expanduser(named))
    # Without a home directory, /tmp is still writable.
    return os.path.realpath(os.path.join(base if base != "~" else "/tmp", ".codex"))
