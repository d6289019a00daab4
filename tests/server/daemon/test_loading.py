"""The files that a shared server loads, and its behaviour if they have changed meanwhile."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from app_server.engine.support import helpers
from app_server.engine.support.helpers import APPLY_PATCH, LAUNCHER, READER, WRITER
from app_server.server.daemon.preload import LIBRARIES, OTHER_PROGRAMS, code_of, server_modules
from tests.support.loading import modules_loaded_by
from tests.support.source_modules import imports, modules
from tests.test_architecture import inside, reachable


def test_everything_is_loaded_that_a_server_may_import_late() -> None:
    graph = {name: imports(name) & modules().keys() for name in modules()}
    graph |= {
        name: frozenset()
        for name in graph
        if name in ("app_server.cli.dispatch", "app_server.server.daemon.preload")
    }
    needed = reachable(graph, "app_server.server.daemon.daemon_process")
    needed |= {name for name in modules() if inside(name, "app_server.server.apis")}
    missing = needed - set(server_modules()) - {"app_server", "app_server_protocol"}
    assert {name for name in missing if not name.startswith(OTHER_PROGRAMS)} == set()


def test_a_server_that_has_loaded_everything_has_no_front_end() -> None:
    loaded = modules_loaded_by(
        "from app_server.server.daemon.preload import load_everything; load_everything()"
    )
    others = (
        *("app_server.cli.chat", "app_server.client", "app_server.cli.commands", "app_server.cli.demo"),
        *("app_server.cli.exec", "app_server.cli.inspect", "app_server.cli.admin", "app_server.cli.batch"),
    )
    assert {name for name in loaded if any(inside(name, other) for other in others)} == set()
    assert {
        *LIBRARIES,
        "app_server.engine.session.operations",
        "app_server.server.apis.acp.acp_routes",
    } <= loaded


def test_programs_are_carried_with_all_that_they_import() -> None:
    graph = {name: imports(name) & modules().keys() for name in modules()}
    for program in (WRITER, APPLY_PATCH, READER, LAUNCHER):
        carried = {name for name, (_, code) in code_of(program).items() if code is not None}
        assert carried == {program, *reachable(graph, program)}, program


def test_every_file_of_the_server_that_is_no_module_is_read_ahead() -> None:
    """A new file has to be read in `_steps`, and named here."""
    core = Path(helpers.INSTALLED, "app_server/engine")
    files = {
        str(path.relative_to(core))
        for path in core.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {name for name in files if not name.endswith((".py", ".md"))} == {"model/models.json"}
    assert {str(Path(name).parent) for name in files if name.endswith(".md")} == {"context/instructions"}


EXTRAS = ("ray", "rich", "prompt_toolkit", "starlette", "uvicorn", "opentelemetry", "shtab")

LOADS = f"""
import sys
for name in {EXTRAS!r}:
    sys.modules[name] = None  # as where it is not installed
from app_server.server.daemon.preload import load_everything
load_everything()
before = set(sys.modules)
import app_server.server.apis.v2.handlers.thread_reads, app_server.server.apis.acp.acp_routes
import app_server.engine.approvals.shell.shell_script
print(sorted(set(sys.modules) - before))
"""


def test_nothing_of_an_extra_is_needed() -> None:
    done = subprocess.run((sys.executable, "-c", LOADS), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr


IN_QUIET_MOMENTS = """
import pathlib, resource, shutil, sys, threading
import anyio
from app_server.server.daemon import preload as loading
from app_server.server.daemon.preload import InstallationChanged, load_in_quiet_moments
package, moments = pathlib.Path(sys.argv[1]), iter((False, True))

def is_quiet():
    moment = next(moments, None)
    if moment:
        {change}
    elif moment is None:  # the shortage is over, if there was one
        resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 4096))
    return True

try:
    anyio.run(load_in_quiet_moments, is_quiet)
except InstallationChanged:
    print("changed")
"""


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("pass", ""),
        ("shutil.rmtree(package)", "changed"),
        ("package.joinpath('__init__.py').touch()", "changed"),
        ("resource.setrlimit(resource.RLIMIT_NOFILE, (3, 4096)); loading.SHORTAGE_SECONDS = 0", ""),
    ],
)
def test_an_installation_that_changes_while_it_is_loaded_is_noticed(
    change: str, said: str, tmp_path: Path
) -> None:
    for package in ("app_server", "app_server_protocol"):
        shutil.copytree(Path(sys.modules[package].__path__[0]), tmp_path / package)
    done = subprocess.run(
        (sys.executable, "-P", "-c", IN_QUIET_MOMENTS.format(change=change), tmp_path / "app_server"),
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout.strip()) == (0, said), done.stderr
