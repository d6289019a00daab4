"""Whether the user wants a plain server to be the proxy of a shared one. Fast to import: most starts ask and get a no.

The user's file and environment say it, never a project's settings.
"""

from __future__ import annotations

import os
import stat

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Mapping

VARIABLE = "APP_SERVER_SHARED"
SETTINGS_FILE = "config.toml"
MOST_BYTES = 16 << 20


def is_sharing_wanted(environment: Mapping[str, str], home: str) -> bool:
    """Tell whether `APP_SERVER_SHARED` is 1, or not 0 and `app_server.shared` true; never in continuous integration."""
    if environment.get("CI") == "true":
        return False
    wish = environment.get(VARIABLE, "")
    return wish == "1" if wish in ("0", "1") else _is_configured(os.path.join(home, SETTINGS_FILE))


def _is_configured(path: str) -> bool:
    """Tell whether the file says so. It is parsed only where it has the word: that takes as long as all the rest."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        status = os.fstat(fd)  # the server says what is wrong with one that is no file
        data = os.read(fd, min(status.st_size, MOST_BYTES)) if stat.S_ISREG(status.st_mode) else b""
    except OSError:
        return False
    finally:
        os.close(fd)
    if b"shared" not in data:
        return False
    import tomli  # noqa: PLC0415  see above

    try:
        table = tomli.loads(data.decode()).get("app_server")
    except ValueError:  # the server says what is wrong
        return False
    return isinstance(table, dict) and table.get("shared") is True
