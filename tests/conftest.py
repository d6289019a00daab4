"""Settings and fixtures for all tests."""

import ast
import gc
import os
import signal
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from _pytest.terminal import TerminalReporter
from hypothesis import HealthCheck, Phase, settings

from app_server.engine.storage.line_reader import without_collector
from tests.support.library import MakeLibraryWorld, library_worlds
from tests.support.not_run import not_run
from tests.support.world import MakeWorld, worlds_in

pytest_plugins = ("tests.support.browser", "tests.support.fault_reports")

# No test may fail because the machine is slow or busy.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")
# `make mutants` only needs to know that a test fails, so hypothesis does not shrink the example.
settings.register_profile("mutants", phases=[Phase.explicit, Phase.generate], database=None)

if sys.version_info < (3, 12, 3):
    # The garbage collector may run inside `ast.parse`. If a destructor fails then, its traceback is made with
    # `ast.parse`, too, and the outer call ends with a SystemError (CPython issue 106905). pytest calls it to report
    # a failed test, so that one failure could end the whole run.
    ast.parse = without_collector()(ast.parse)


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell that starts the suite in the background ignores Ctrl-C for it, and so for every process of the tests.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Return the number of workers for `-n auto`. Tests wait for other processes half of their time, in which another
    worker can run.
    """
    return 2 * (os.cpu_count() or 1)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep what is loaded and collected out of each run of the garbage collector: it stays to the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = [each.longrepr[2] for each in skipped if isinstance(each.longrepr, tuple)]
    if reasons:
        terminalreporter.write_sep("=", "not run")
        for line in not_run(reasons):
            terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def world(tmp_path: Path) -> MakeWorld:
    return worlds_in(tmp_path)


@pytest.fixture
def library(tmp_path: Path) -> MakeLibraryWorld:
    """Return a factory of worlds for scenarios about the agent, and not about the messages of an API."""
    return library_worlds(tmp_path, "in_process")


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """Yield an empty directory. Its path is short and has the same length in each run, because it is shown in lines of
    a certain width.
    """
    with tempfile.TemporaryDirectory(prefix="t-") as folder:
        yield Path(folder)


@pytest.fixture
def unversioned(tmp_path: Path) -> Iterator[Path]:
    """Yield an empty directory that no git repository contains. `tmp_path` usually is one, but not if a directory above
    it, such as /tmp, has a `.git`.
    """
    if not _in_repository(tmp_path):
        yield tmp_path
        return
    for place in (tempfile.gettempdir(), "/var/tmp", "/tmp", Path.home()):
        if os.access(place, os.W_OK | os.X_OK) and not _in_repository(Path(os.path.realpath(place))):
            with tempfile.TemporaryDirectory(dir=os.path.realpath(place)) as folder:
                yield Path(folder)
            return
    pytest.skip("every directory for temporary files is in a git repository")


def _in_repository(folder: Path) -> bool:
    return any(os.path.lexists(each / ".git") for each in (folder, *folder.parents))
