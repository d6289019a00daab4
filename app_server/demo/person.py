"""Who is asked for approval: a person at the terminal, `--yes`, or nobody."""

from __future__ import annotations

import termios
from typing import Protocol, TextIO

import anyio

from app_server.demo.screen import Screen
from protocol.records import dataclass


class Person(Protocol):
    """Decides about approvals."""

    async def decide(self, question: str) -> bool: ...


@dataclass(frozen=True, slots=True)
class AlwaysYes:
    """The flag `--yes`."""

    screen: Screen

    async def decide(self, question: str) -> bool:
        self.screen.question(f"{question} ")
        self.screen.answered("yes (--yes)", typed=False)
        return True


@dataclass(frozen=True, slots=True)
class AtTerminal:
    """The person at the terminal; anything but y or yes is a denial."""

    screen: Screen
    stdin: TextIO

    async def decide(self, question: str) -> bool:
        termios.tcflush(self.stdin, termios.TCIFLUSH)  # typed before there was a question
        self.screen.question(f"{question} [y/n] ")
        await anyio.wait_readable(self.stdin)  # rather than a thread: it can be interrupted
        typed = self.stdin.readline()
        yes = typed.strip().lower() in ("y", "yes")
        self.screen.answered("approved" if yes else "denied", typed=typed.endswith("\n"))
        return yes


@dataclass(frozen=True, slots=True)
class Nobody:
    """No terminal and no `--yes`: everything is denied."""

    screen: Screen

    async def decide(self, question: str) -> bool:
        self.screen.question(f"{question} ")
        self.screen.answered("denied: there is no terminal to ask at, and no --yes", typed=False)
        return False


def who_decides(screen: Screen, stdin: TextIO | None, *, yes: bool) -> Person:
    if yes:
        return AlwaysYes(screen)
    if stdin is not None and stdin.isatty():
        return AtTerminal(screen, stdin)
    return Nobody(screen)
