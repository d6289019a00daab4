"""Functions that frontends with a command line share: the working directory, signals, printable text of others,
the marks of a plan.
"""

from __future__ import annotations

import os
import re
import signal
import unicodedata
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import anyio
from anyio.abc import TaskStatus

from app_server.client.failures import AppServerError, RequestRefused

if TYPE_CHECKING:
    from app_server.client.app_server import AppServer

THREAD_ID: Final = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


class InvalidCommandLine(Exception):
    """The command line cannot be used. The text says what was expected, and `advice` what to do."""

    def __init__(self, what: str, advice: str = "") -> None:
        super().__init__(what)
        self.advice = advice


def working_folder(named: str | None) -> Path:
    """Return the folder that `--cd` names, or the current one. Raises InvalidCommandLine."""
    try:
        folder = Path(os.path.realpath(named or os.getcwd()))
    except FileNotFoundError:
        raise InvalidCommandLine("the working directory was removed", "name a folder with --cd") from None
    if not folder.is_dir():
        raise InvalidCommandLine(f"--cd: {folder} is not a folder")
    if not is_utf8(str(folder)):
        raise InvalidCommandLine(
            f"the name of the folder {folder} is not UTF-8, which a server cannot be told",
            "rename it, or name another folder with --cd",
        )
    return folder


def is_thread_id(argument: str) -> bool:
    """Return whether an argument has the form of a thread's id."""
    return THREAD_ID.fullmatch(argument) is not None


async def newest_thread(server: AppServer, cwd: Path) -> str:
    """Return the id of the thread of a folder that was updated last. Raises AppServerError if there is none."""
    async for stored in server.threads(cwd=cwd, page_size=1, sort_key="updated_at"):
        return stored.id
    raise AppServerError(f"no stored thread of {cwd}")


def is_utf8(argument: str) -> bool:
    """Return whether an argument or a path is UTF-8."""
    try:
        argument.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


T = TypeVar("T")

FAILED: Final = 1
USAGE: Final = 2
SIGNALLED: Final = 128
INTERRUPTED: Final = SIGNALLED + signal.SIGINT
"""Exit statuses. After a signal the status is that of a shell, with the signal's number. The last one is that of
Ctrl-C.
"""

ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


async def cancel_on_signal(
    scope: anyio.CancelScope,
    numbers: Sequence[signal.Signals] = ENDING,
    ended_by: Callable[[int], object] = lambda number: None,
    handled: Callable[[int], bool] = lambda number: False,
    *,
    task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
) -> None:
    """Wait for a signal that ends the program, and cancel the scope, so that its tasks clean up. `ended_by` receives
    the signal's number. A signal for which `handled` returns True is ignored.
    """
    with anyio.open_signal_receiver(*numbers) as signals:
        task_status.started()
        async for number in signals:
            if handled(number):
                continue
            ended_by(number)
            scope.cancel()
            return


async def until_signal(
    run: Callable[[], Awaitable[T]], ended_by: Callable[[int], object] = lambda number: None
) -> T | None:
    """Return the result of `run`; None if a signal ended it, after it has cleaned up."""
    result: T | None = None
    async with anyio.create_task_group() as group:
        await group.start(cancel_on_signal, group.cancel_scope, ENDING, ended_by)
        result = await run()
        group.cancel_scope.cancel()
    return result


STEP_MARKS: Final[Mapping[str, str]] = {"pending": "[ ]", "inProgress": "[>]", "completed": "[x]"}
"""Marks of the steps of a plan, by status."""


def reason(error: AppServerError) -> str:
    """Return the reason of a failure as text for a person, without the name of the refused method; it is safe to
    print.
    """
    return printable(error.message if isinstance(error, RequestRefused) else str(error))


UNLOADED: Final = "failed to load configuration: "
"""Prefix of the error of a request that needs settings which cannot be used. The warning about them has no such
prefix.
"""


class EarlyWarnings:
    """Warnings that arrive before a command can show them, kept until then. If the command fails, warnings that only
    repeat the reason are left out.
    """

    def __init__(self, show: Callable[[str], object]) -> None:
        self._show = show
        self._kept: list[str] | None = []

    def add(self, text: str) -> None:
        """Keep a warning, or show it if `release` was called."""
        if self._kept is None:
            self._show(text)
        else:
            self._kept.append(text)

    def release(self, reason: str | None = None) -> None:
        """Show the kept warnings, except those that repeat the `reason` of a failure. `reason` is None if nothing
        failed.
        """
        kept, self._kept = self._kept, None
        cause = reason and reason.removeprefix(UNLOADED)
        for text in kept or ():
            if cause is None or cause not in printable(text):
                self._show(text)


def printable(text: str) -> str:
    """Replace control characters, with which a model or a command could control the terminal."""
    return "".join(c if c.isprintable() or _is_blank(c) else "\ufffd" for c in text.replace("\r\n", "\n"))


def _is_blank(character: str) -> bool:
    """Return whether it is a space of any script, a line end or a tab."""
    return character in "\n\t" or unicodedata.category(character) == "Zs"


def single_errors(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    """Return the errors of a group and of its nested groups."""
    found: list[BaseException] = []
    for error in group.exceptions:
        found += single_errors(error) if isinstance(error, BaseExceptionGroup) else [error]
    return found
