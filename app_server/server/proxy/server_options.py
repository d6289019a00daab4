"""The options of a server and of a proxy: one declaration, and the light parse of a command line that has no others.

Three parts of the program read the declaration. `read_options` here parses the command lines with which editors start a
server or a proxy, which must not wait for argparse; it returns None for help, mistakes and every other command.
`cli.arguments` adds the same options to parsers of argparse, which parse all of those. `option_words` writes the words
of a command line that starts another process with the same options.

Fast to import: every start imports it, and it uses only modules that are loaded anyway.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    Options = dict[str, object]

ALIAS = "app-server"
"""Name of the command that clients pass once or twice. It means the same as no command."""

FORMS: tuple[list[str], ...] = ([], ["acp"], ["proxy"], ["proxy", "acp"])
"""Command lines of the light parse, without their options."""


class Option:
    """An option: its names, its help, and the way in which its value is read."""

    def __init__(
        self,
        *names: str,
        help: str | None,
        metavar: str | None = None,
        repeated: bool = False,
        choices: tuple[str, ...] = (),
        check: Callable[[str], str] | None = None,
        before_start: bool = False,
    ) -> None:
        """`help` is None if it is not shown. `metavar` is None for a flag. `check` returns the value of a text, and
        raises ValueError.
        """
        self.names, self.help, self.metavar, self.repeated = names, help, metavar, repeated
        self.choices, self._check = choices, check
        self.before_start = before_start
        """Whether it is handled before a server starts, which then may not start at all (`cli.startup_options`)."""
        self.name = names[-1][2:].replace("-", "_")
        """Name of its value."""

    def read(self, text: str) -> str:
        """Return the value of a text. Raises ValueError."""
        if self.choices and text not in self.choices:
            raise ValueError(f"expected {any_of(self.choices)}, got {text!r}")
        return text if self._check is None else self._check(text)


def any_of(words: Iterable[str]) -> str:
    """Return the words as a list with "or"."""
    *others, last = words
    return f"{', '.join(others)} or {last}" if others else last


# --- values
def _setting(text: str) -> str:
    key, equals, _ = text.partition("=")
    if not equals or not key.strip():
        raise ValueError(f"expected key=value, got {text!r}")
    return text


def _folder(text: str) -> str:
    if not os.path.isdir(text):
        raise ValueError(f"{text} is not a folder")
    return os.path.realpath(text)


def _ws_auth(text: str) -> str:
    if text == "signed-bearer-token":
        raise ValueError("signed-bearer-token is not supported: expected capability-token")
    if text != "capability-token":
        raise ValueError(f"expected capability-token, got {text!r}")
    return text


# --- the declaration
SETTINGS = (
    Option(
        *("-c", "--config"),
        repeated=True,
        check=_setting,
        metavar="KEY=VALUE",
        help="override a setting (dotted key, TOML value)",
    ),
    Option("--enable", repeated=True, metavar="FEATURE", help="switch a feature on"),
    Option("--disable", repeated=True, metavar="FEATURE", help="switch a feature off"),
    Option("-p", "--profile", metavar="NAME", help="use a profile of config.toml"),
)
"""Options that override the settings of `config.toml`."""

MODEL = Option("-m", "--model", metavar="MODEL", help="the model of new conversations")
SANDBOX = Option(
    *("-s", "--sandbox"),
    choices=("read-only", "workspace-write", "danger-full-access"),
    metavar="MODE",
    help="what commands may do",
)
ADD_DIR = Option(
    "--add-dir",
    repeated=True,
    check=_folder,
    metavar="DIR",
    help="another folder that commands may write",
)
APPROVAL = Option(
    *("-a", "--ask-for-approval"),
    choices=("untrusted", "on-failure", "on-request", "never"),
    metavar="WHEN",
    help="when to ask",
)
CONVERSATIONS = (MODEL, SANDBOX, ADD_DIR, APPROVAL)
"""Options for new conversations."""

SERVING = (
    Option(
        "--listen",
        repeated=True,
        metavar="ADDRESS",
        help="stdio:// (the default), unix://, unix:///PATH, ws://127.0.0.1:PORT or off; several times for several",
    ),
    Option("--stdio", help="serve stdin and stdout, as without it"),
    Option(
        "--ws-token-file",
        metavar="FILE",
        help="the token of clients of ws://; without it, one in the home is made",
    ),
    Option("--ws-token-sha256", metavar="HEX", help="its SHA-256, instead of the token"),
    Option(
        "--ws-auth",
        check=_ws_auth,
        metavar="MODE",
        help="how clients of ws:// show who they are: capability-token, which is the default",
    ),
    Option("--strict-config", before_start=True, help="end with an error where a setting is not known"),
    Option(
        "--print-startup-config",
        before_start=True,
        help="check the settings, print requirements as JSON, and end",
    ),
    # An editor gives this option each time.
    Option("--analytics-default-enabled", help="without effect: nothing is reported to anybody"),
    Option(
        "--startup-sign-out",
        before_start=True,
        help="without effect: logins are not managed by an organization",
    ),
    Option(
        "--startup-client-info",
        before_start=True,
        metavar="JSON",
        help="without effect: a client names itself",
    ),
    Option(
        "--cloud-skills-snapshot", before_start=True, metavar="FILE", help="without effect: skills are files"
    ),
    Option(
        "--code-mode-host", before_start=True, metavar="URL", help="without effect: there is no code mode"
    ),
    Option(
        "--startup", metavar="STARTUP", help=None
    ),  # descriptors of the process that starts a shared server
)
"""Options of a server alone."""

PROXY = (
    Option("--sock", metavar="PATH", help="the server that listens there; without it, that of the home"),
    Option("--no-start", help="fail where there is no server"),
    Option("--all-threads", help="tell the client of threads that others opened, too"),
)
"""Options of a proxy alone."""

OF_CLIENTS = (*SETTINGS, *(each for each in CONVERSATIONS if each is not ADD_DIR))
"""Options that a client of a shared server has: they apply to the conversations that it opens."""

ASKING_FOR_A_SERVER = frozenset(each.name for each in (*SERVING, *CONVERSATIONS) if each is not MODEL) - {
    "analytics_default_enabled"
}
"""Names of the options with which a plain server is not shared."""


# --- the light parse
def read_options(argv: Sequence[str]) -> Options | None:
    """Return the options by the names that argparse gives them; None if argparse has to parse the command line.

    `command` is None for a server, `api` is "acp" for one that speaks the Agent Client Protocol.
    """
    known = {name: each for each in (*SETTINGS, *CONVERSATIONS, *SERVING, *PROXY) for name in each.names}
    found: Options = {}
    lists: dict[str, list[str]] = {}
    bare: list[str] = []
    words = iter(argv)
    for word in words:
        if not word.startswith("-"):
            if word != ALIAS:
                bare.append(word)
            continue
        name, glued, value = word.partition("=") if word.startswith("--") else (word, "", "")
        option = known.get(name)
        if option is None or option.before_start:
            return None
        if option.metavar is None:
            if glued:
                return None
            found[option.name] = True
            continue
        text = value if glued else next(words, None)
        if text is None or text.startswith("-"):
            return None
        try:
            given = option.read(text)
        except ValueError:
            return None
        if option.repeated:
            lists.setdefault(option.name, []).append(given)
        else:
            found[option.name] = given
    if bare not in FORMS:
        return None
    found |= lists
    is_proxy = bare[:1] == ["proxy"]
    if not found.keys().isdisjoint(each.name for each in (SERVING if is_proxy else PROXY)):
        return None
    return {"command": "proxy" if is_proxy else None, "api": "acp" if "acp" in bare else None, **found}


# --- words for another process
def option_words(given: Mapping[str, object], options: Iterable[Option]) -> list[str]:
    """Return the words of a command line with those of the `options` that were given, by name."""
    words: list[str] = []
    for option in options:
        value = given.get(option.name)
        values = value if isinstance(value, (list, tuple)) else [] if value is None else [value]
        words += [f"{option.names[-1]}={each}" for each in values]
    return words
