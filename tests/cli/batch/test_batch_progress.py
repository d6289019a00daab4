"""The progress display of a running batch."""

import io
import json
from pathlib import Path

import pytest

from app_server.cli.batch.budget import Ledger, SharedLimits
from app_server.cli.batch.out_folder import Results
from app_server.cli.batch.progress import Progress
from app_server.cli.batch.requirements import WORKER_BYTES, fitting
from app_server.cli.batch.worker_messages import Ask, Over, Result, TaskUsage
from app_server.client.prices import ModelPrice

PRICES = {"m": ModelPrice(input=1000.0, output=1000.0)}


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def spend(ledger: Ledger, number: int, now: float) -> None:
    ledger.ask(Ask(id=f"t{number}", size=1, first=True))
    list(ledger.answers(now))
    ledger.over(Over(id=f"t{number}", model="m", usage=TaskUsage(input_tokens=600, requests=1)), now)


def two_of_five(folder: Path, stderr: io.StringIO, prices: dict[str, ModelPrice]) -> Progress:
    """Return the progress of a batch in which two of five tasks have ended, one of them in an earlier run."""
    results = Results(folder, [f"t{n}" for n in range(5)])
    for id, status in (("t0", "completed"), ("t1", "failed")):
        if id == "t1":
            ledger = Ledger(SharedLimits(prices=prices), 0.0, {})
            progress = Progress(5, results, ledger, 0.0, stderr, None)
            spend(ledger, 1, 0.0)
        results.append([Result(id=id, status=status)])  # type: ignore[arg-type]
    return progress


def test_a_line_a_minute_says_how_it_stands(tmp_path: Path) -> None:
    stderr = io.StringIO()
    progress = two_of_five(tmp_path, stderr, {})
    for now in range(0, 241, 2):
        progress.show(3, float(now))
    lines = stderr.getvalue().splitlines()
    assert len(lines) == 4
    assert lines[1] == (
        "2 of 5 tasks, 3 running, 1 completed, 1 failed, 600 tokens (300 a minute), about 6 min left"
    ), "one of five has ended in two minutes, and three are left"


def test_the_cost_is_shown_where_there_are_prices(tmp_path: Path) -> None:
    stderr = io.StringIO()
    two_of_five(tmp_path, stderr, PRICES).show(0, 60.0)
    assert "600 tokens (600 a minute), cost 0.60, about 3 min left" in stderr.getvalue()


def test_a_terminal_has_one_line_that_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    screen = Screen()
    progress = two_of_five(tmp_path, screen, {})
    progress.show(2, 1.0)
    assert "2 of 5 tasks, 2 running" in screen.getvalue(), "at once, and not after a minute"
    progress.note("something [red] happened")
    assert screen.getvalue().count("app-server batch: something [red] happened\n") == 1
    progress.show(1, 2.0)
    shown = screen.getvalue().rpartition("2 of 5 tasks, 1 running")[2]
    assert "\n" not in shown, "it fits into the line of a terminal"
    progress.note("all is well")
    assert screen.getvalue().endswith("app-server batch: all is well\n")


def test_a_terminal_that_cannot_move_its_cursor_has_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "dumb")
    screen = Screen()
    progress = two_of_five(tmp_path, screen, {})
    progress.show(2, 1.0)
    assert screen.getvalue() == ""
    progress.show(2, 61.0)
    assert screen.getvalue().startswith("2 of 5 tasks, 2 running")


def test_events_are_lines_of_json(tmp_path: Path) -> None:
    events = io.StringIO()
    results = Results(tmp_path, ())
    progress = Progress(0, results, Ledger(SharedLimits(), 0.0, {}), 0.0, io.StringIO(), events)
    progress.note("a\x1b[2Jb")
    assert json.loads(events.getvalue()) == {"method": "notice", "params": {"message": "a\x1b[2Jb"}}


@pytest.mark.parametrize(
    ("kilobytes", "workers"), [(1, 0), (WORKER_BYTES >> 10, 1), ((WORKER_BYTES >> 10) * 10**6, None)]
)
def test_there_are_as_many_workers_as_fit_into_memory(
    kilobytes: int, workers: int | None, tmp_path: Path
) -> None:
    usable = fitting(tmp_path / "missing")
    assert usable >= 1
    (tmp_path / "meminfo").write_text(f"MemTotal: 99 kB\nMemAvailable: {kilobytes} kB\nHugePages_Total: 0\n")
    assert fitting(tmp_path / "meminfo") == (usable if workers is None else workers)
