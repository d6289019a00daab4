from __future__ import annotations

from pathlib import Path

import pytest
from _pytest.reports import TestReport
from _pytest.terminal import TerminalReporter

from tests.faults.rig import LONG
from tests.faults.summary import markdown, rows
from tests.support.world import MakeWorld, worlds_in


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def world(tmp_path: Path) -> MakeWorld:
    return worlds_in(tmp_path)


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """`make faults` ends with a table."""
    if LONG:
        every = [
            each for some in terminalreporter.stats.values() for each in some if isinstance(each, TestReport)
        ]
        terminalreporter.write_sep("=", "fault suite")
        for line in markdown(rows(every)):
            terminalreporter.write_line(line)
