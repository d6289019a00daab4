"""Checks of the demo and their results."""

from __future__ import annotations

from app_server.demo.screen import Screen
from protocol.records import dataclass


class DemoStopped(Exception):
    """The demo cannot go on."""


@dataclass(slots=True)
class Checks:
    """Counts; the demo's exit status comes from here."""

    screen: Screen
    passed: int = 0
    failed: int = 0
    denied: int = 0
    """Steps that were skipped because an approval was denied."""

    def expect(self, what: str, happened: bool, instead: object = None) -> None:
        """`what` describes the success; `instead` is the actual value."""
        if happened:
            self.passed += 1
            self.screen.check(what)
        else:
            self.failed += 1
            found = "" if instead is None else f"; found: {instead!r}"
            self.screen.failure(f"expected: {what}{found}")

    def stopped(self, why: str) -> None:
        """Nothing more can be checked."""
        self.failed += 1
        self.screen.failure(f"the demo cannot continue: {why}")

    @property
    def status(self) -> int:
        """0 only if everything happened."""
        return 0 if self.passed and not self.failed and not self.denied else 1
