"""The table of the fault suite counts each test once, whatever its outcome."""

from typing import Literal

import pytest
from _pytest.reports import TestReport

from tests.support.fault_summary import markdown, rows

pytestmark = [pytest.mark.process, pytest.mark.faults]

When = Literal["setup", "call", "teardown"]
Outcome = Literal["passed", "failed", "skipped"]


def report(name: str, when: When, outcome: Outcome, seconds: float = 1.0) -> TestReport:
    where = ("x.py", 1, name)
    return TestReport(
        f"tests/faults/test_some_ends.py::{name}", where, {}, outcome, None, when, duration=seconds
    )


def test_each_test_counts_once() -> None:
    stages: tuple[tuple[str, When, Outcome], ...] = (
        ("good", "setup", "passed"),
        ("good", "call", "passed"),
        ("good", "teardown", "passed"),
        ("bad", "call", "failed"),
        ("unfit", "setup", "skipped"),
    )
    (row,) = rows(report(*stage) for stage in stages)
    assert (row.cases, row.lost, row.skipped, row.seconds) == (3, 1, 1, 5.0)
    table = markdown([row])
    assert "| some ends | 3 | 5 | 1 | 1 |" in table
    assert table[-1] != "Nothing was lost."
