"""What a row of the table of subcommands is: what help, completion and the parser need of a command."""

from __future__ import annotations

from typing import Final, NamedTuple

SERVE: Final = "serve"
USE: Final = "use"
BUILD: Final = "build"
LOOK_AFTER: Final = "look after"

GROUPS: Final = {
    SERVE: "for editors and other programs, over stdin and stdout",
    USE: "at a terminal and in scripts",
    BUILD: "for authors of front ends",
    LOOK_AFTER: "this machine, logins and settings",
}
"""The groups of `app-server --help`, in its order."""


class Example(NamedTuple):
    line: str
    """A whole command line, as a shell takes it."""
    what: str = ""


class Subcommand(NamedTuple):
    name: str
    """One word, or two where a command has commands of its own: `threads list`."""
    group: str
    summary: str
    usage: str
    """What follows the options."""
    module: str
    """The module of this package whose `CODE` has the command's code."""
    examples: tuple[Example, ...]
