"""The settings of a command line as arguments of the server, and text of others that is safe to print."""

from __future__ import annotations

from collections.abc import Mapping

from app_server.client.subprocess_link import OWN_COMMAND
from protocol.base import Json


def server_command(given: Mapping[str, Json]) -> tuple[str, ...]:
    """This installation's server with the settings that were `given`, by the names of the arguments."""
    arguments: list[str] = [*OWN_COMMAND]
    for name, option in (("config", "-c"), ("enable", "--enable"), ("disable", "--disable")):
        for value in given.get(name, ()):
            arguments += [option, value]
    for name, option in (("profile", "-p"), ("model", "-m"), ("sandbox", "-s"), ("ask_for_approval", "-a")):
        if given.get(name) is not None:
            arguments += [option, given[name]]
    return tuple(arguments)


def printable(text: str) -> str:
    """Without control characters, by which a model or a command could drive the terminal."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text.replace("\r\n", "\n"))
