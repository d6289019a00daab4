"""The server's home, as a path. Imports nothing: it is used by the proxy, whose whole start takes ten milliseconds."""

from __future__ import annotations

import os

TYPE_CHECKING = False  # importing `typing` takes as long as all imports of the proxy

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
    # Without a home directory, the server falls back to /tmp, which is writable.
    return os.path.realpath(os.path.join(base if base != "~" else "/tmp", ".codex"))
