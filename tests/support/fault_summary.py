"""The table at the end of `make faults`: the tests that ran, their duration, and their losses."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from _pytest.reports import TestReport


@dataclass(slots=True)
class Row:
    """Row of the table: one file of tests."""

    file: str
    cases: int = 0
    seconds: float = 0.0
    lost: int = 0
    skipped: int = 0


def rows(reports: Iterable[TestReport]) -> list[Row]:
    found: dict[str, Row] = {}
    for report in reports:
        file = report.nodeid.partition("::")[0]
        row = found.setdefault(file, Row(file))
        row.seconds += report.duration
        row.lost += report.failed
        row.skipped += report.skipped
        row.cases += report.when == "call" or (report.when == "setup" and report.outcome != "passed")
    return sorted(found.values(), key=lambda row: row.file)


def markdown(table: list[Row]) -> list[str]:
    head = ["| tests | cases | seconds | skipped | failed |", "|---|---:|---:|---:|---:|"]
    body = [
        f"| {_name(row.file)} | {row.cases} | {row.seconds:.0f} | {row.skipped} | {row.lost} |"
        for row in [*table, total(table)]
    ]
    return [
        *head,
        *body,
        "",
        "Nothing was lost." if not total(table).lost else "Something was lost: see above.",
    ]


def total(table: list[Row]) -> Row:
    return Row(
        "all",
        sum(row.cases for row in table),
        sum(row.seconds for row in table),
        sum(row.lost for row in table),
        sum(row.skipped for row in table),
    )


def _name(file: str) -> str:
    return Path(file).stem.removeprefix("test_").replace("_", " ")
