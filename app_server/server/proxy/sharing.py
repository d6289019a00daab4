"""The decision whether a plain server is a proxy of a shared one: the user's wish, by a variable or by `config.toml`.

Fast to import: every start of a server asks, and most get a no.
"""

from __future__ import annotations

import os
import stat

from app_server.engine.support.home import home_folder
from app_server.server.proxy.server_options import ASKING_FOR_A_SERVER

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Mapping

VARIABLE = "APP_SERVER_SHARED"
SETTINGS_FILE = "config.toml"
MOST_BYTES = 16 << 20


def is_shared(options: Mapping[str, object], environment: Mapping[str, str]) -> bool:
    """Return whether a plain server with these options is a proxy. Some options ask for a server of its own."""
    if not options.keys().isdisjoint(ASKING_FOR_A_SERVER):
        return False
    return is_sharing_wanted(environment, home_folder(environment))


def is_sharing_wanted(environment: Mapping[str, str], home: str) -> bool:
    """Return whether `APP_SERVER_SHARED` is 1, or not 0 and `app_server.shared` is true in the user's file; never in
    continuous integration, and a project's settings cannot enable it.
    """
    if environment.get("CI") == "true":
        return False
    wish = environment.get(VARIABLE, "")
    return wish == "1" if wish in ("0", "1") else _is_configured(os.path.join(home, SETTINGS_FILE))


def _is_configured(path: str) -> bool:
    """Return whether the file enables it. The file is parsed only if it contains the word: parsing takes as long as all
    the rest.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        status = os.fstat(fd)  # the server reports a path that is not a file
        data = os.read(fd, min(status.st_size, MOST_BYTES)) if stat.S_ISREG(status.st_mode) else b""
    except OSError:
        return False
    finally:
        os.close(fd)
    if b"shared" not in data:
        return False
    import tomli  # noqa: PLC0415  see above

    try:
        table = tomli.loads(data.decode("utf-8-sig")).get("app_server")
    except ValueError:  # the server reports the mistake
        return False
    return isinstance(table, dict) and table.get("shared") is True
