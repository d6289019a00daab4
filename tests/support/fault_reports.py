from _pytest.reports import TestReport
from _pytest.terminal import TerminalReporter

from tests.support.fault_summary import markdown, rows
from tests.support.places import LONG


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    """Write the table at the end of `make faults`."""
    if LONG:
        every = [
            each for some in terminalreporter.stats.values() for each in some if isinstance(each, TestReport)
        ]
        terminalreporter.write_sep("=", "fault suite")
        for line in markdown(rows(every)):
            terminalreporter.write_line(line)
