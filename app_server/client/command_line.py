"""What frontends with a command line share: the server's arguments, signals, text of others that is safe to print."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from typing import Final

import anyio

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


FAILED: Final = 1
USAGE: Final = 2
INTERRUPTED: Final = 130
"""Exit statuses; the last one is that of a shell after Ctrl-C."""

ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


async def cancel_on_signal(scope: anyio.CancelScope, numbers: Sequence[signal.Signals] = ENDING) -> None:
    """Wait for a signal to end, and end what runs in the scope in good order."""
    with anyio.open_signal_receiver(*numbers) as signals:
        async for _ in signals:
            scope.cancel()
            return


def printable(text: str) -> str:
    """Without control characters, by which a model or a command could drive the terminal."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text.replace("\r\n", "\n"))


def single_errors(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    """What is in the group, without the groups in it."""
    found: list[BaseException] = []
    for error in group.exceptions:
        found += single_errors(error) if isinstance(error, BaseExceptionGroup) else [error]
    return found
