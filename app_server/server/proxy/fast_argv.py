"""A quick parser of command lines, for the two commands that must not wait for argparse: the proxy and a server; and
the check whether the user wants a plain server to be a proxy.

It accepts only unambiguous command lines. All others, including help and mistakes, are left to `commands`, which knows
the same options. Fast to import: every start calls it, and most get a no.
"""

from __future__ import annotations

import os
import stat

from app_server.engine.support.home import home_folder

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Options = dict[str, object]

VARIABLE = "APP_SERVER_SHARED"
SETTINGS_FILE = "config.toml"
MOST_BYTES = 16 << 20

ALIAS = "app-server"
"""Name of the command that clients pass once or twice. It means the same as no command."""

VALUES = {
    "--profile": "profile",
    "-p": "profile",
    "--model": "model",
    "-m": "model",
    "--sock": "sock",
    "--startup": "startup",
}
LISTS = {
    "--config": "config",
    "-c": "config",
    "--enable": "enable",
    "--disable": "disable",
    "--listen": "listen",
}
FLAGS = {"--no-start": "no_start", "--all-threads": "all_threads"}
OF_PROXY = frozenset(("sock", "no_start", "all_threads"))
OF_LISTENERS = frozenset(("listen", "startup"))

WITHOUT_EFFECT = "--analytics-default-enabled"
"""Option without an effect, which an editor gives each time."""

FORMS: tuple[list[str], ...] = ([], ["acp"], ["proxy"], ["proxy", "acp"])
"""Commands, by the words that are not options."""


def proxy_options(argv: Sequence[str], environment: Mapping[str, str]) -> Options | None:
    """Return the options of a proxy, if the command is one, or a plain server that the user wants to be shared. None if
    another command has to run.
    """
    options = quick_options(argv)
    if options is None or options.keys() & OF_LISTENERS:
        return None
    if options["command"] is None and not is_sharing_wanted(environment, home_folder(environment)):
        return None
    return options


def quick_options(argv: Sequence[str]) -> Options | None:
    """Return the options, by the names that argparse would give them; None if argparse has to parse the command line.

    `command` is None for a server, `api` is "acp" for one that speaks the Agent Client Protocol.
    """
    found: Options = {}
    lists: dict[str, list[str]] = {}
    bare: list[str] = []
    words = iter(argv)
    for word in words:
        name, glued, value = word.partition("=") if word.startswith("--") else (word, "", "")
        if name in VALUES or name in LISTS:
            given = value if glued else next(words, None)
            if (
                given is None
                or given.startswith("-")
                or (LISTS.get(name) == "config" and not _is_setting(given))
            ):
                return None
            if name in VALUES:
                found[VALUES[name]] = given
            else:
                lists.setdefault(LISTS[name], []).append(given)
        elif word == WITHOUT_EFFECT:
            continue
        elif word in FLAGS:
            found[FLAGS[word]] = True
        elif word.startswith("-"):
            return None
        elif word != ALIAS:
            bare.append(word)
    if bare not in FORMS:
        return None
    proxy = bare[:1] == ["proxy"]
    found |= lists
    if found.keys() & (OF_LISTENERS if proxy else OF_PROXY):
        return None
    return {"command": "proxy" if proxy else None, "api": "acp" if "acp" in bare else None, **found}


def _is_setting(text: str) -> bool:
    key, equals, _ = text.partition("=")
    return bool(equals and key.strip())


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
