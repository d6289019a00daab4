"""The installed copy has the files of the wheel, and works in any user's folder, beside other packages."""

import os
import shutil
import subprocess
from pathlib import Path

import anyio.to_thread
import pytest

from tests.support import installed
from tests.support.installed import PACKAGES, PREFIX, ROOT, difference
from tests.support.program import PYTHON, SCRIPT
from tests.support.scripted_model import ScriptedModel, patches, reply, says, script
from tests.support.shared import SharedHome, shared_home
from tests.support.socket_clients import Lines
from tests.support.world import PATH

pytestmark = pytest.mark.process


def run(folder: Path, *command: str, **variables: str) -> str:
    """Run a command where another package called `protocol` is found first; return its output."""
    (folder / "protocol.py").write_text("raise ImportError('another package of that name')\n")
    done = subprocess.run(
        command,
        env={"PATH": PATH, "HOME": str(folder), "PYTHONPATH": str(folder), **variables},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_nothing_of_it_comes_from_the_repository(tmp_path: Path) -> None:
    code = "import app_server, app_server_protocol as p, sys; print(app_server.__file__, p.__file__, *sys.path[1:])"
    if installed.GIVEN is None:
        told = run(tmp_path, PYTHON, "-c", code)
        ours = [Path(path) for path in told.split() if Path(path).is_relative_to(ROOT)]
        assert len(ours) >= 3
        assert [path for path in ours if not path.is_relative_to(PREFIX)] == []


def test_a_turn_with_a_command_runs_beside_other_packages(tmp_path: Path) -> None:
    run(tmp_path, SCRIPT, "demo", "--yes")
    assert run(tmp_path, SCRIPT, "exec", "--demo", "hello").strip()


def test_schemas_are_written_under_their_own_names(tmp_path: Path) -> None:
    run(tmp_path, SCRIPT, "generate-json-schema", "--out", str(tmp_path / "out"))
    for name in ("ClientRequest.json", "ServerNotification.json"):
        assert (tmp_path / "out" / name).read_bytes() == (ROOT / "schema" / name).read_bytes()


async def test_a_shared_server_that_has_loaded_everything_runs_commands_and_patches(
    short_folder: Path,
) -> None:
    patch = "*** Begin Patch\n*** Add File: made\n+by a patch\n*** End Patch"
    calls = reply(script("echo by a command > told", call_id="runs"), patches(patch, "patches"))
    model = ScriptedModel([calls, reply(says("done"))])
    async with shared_home(short_folder, model, {"sandbox_mode": "workspace-write"}) as shared:
        await anyio.to_thread.run_sync(turn_after_loading, shared)
        assert (shared.root / "told").read_text() == "by a command\n"
        assert (shared.root / "made").read_text() == "by a patch\n"


def turn_after_loading(shared: SharedHome) -> None:
    assert shared.daemon("start")[0] == 0
    shared.wait_until_loaded()
    client = Lines(shared)
    client.initialize()
    thread = client.call("thread/start", cwd=str(shared.root), approvalPolicy="never")["thread"]["id"]
    client.call("turn/start", threadId=thread, input=[{"type": "text", "text": "go"}])
    assert client.hear("turn/completed")["turn"]["status"] == "completed", shared.log
    client.connection.close()
    assert shared.daemon("stop")[0] == 0


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make the sources of a package with one module, and an environment in which it is installed."""
    sources = tmp_path / "sources"
    sources.mkdir()
    (sources / "module.py").write_text("number = 1\n")
    (tmp_path / "pyproject.toml").write_text("")
    monkeypatch.setattr(installed, "PACKAGES", {"package": sources})
    monkeypatch.setattr(installed, "PROJECT", tmp_path / "pyproject.toml")
    told = tmp_path / "lib" / "python3" / "site-packages" / "app_server_agent-1.dist-info"
    told.mkdir(parents=True)
    digest = installed.digest_of(sources / "module.py")
    (told / "RECORD").write_text(
        f"package/module.py,{digest},11\npackage/__pycache__/module.pyc,,\nother.py,x,1\n"
    )
    (tmp_path / installed.COMPLETE).write_text(f"{installed.digest_of(installed.PROJECT)} {installed.EXTRAS}")
    return tmp_path


def test_a_copy_of_the_sources_has_no_difference(copied: Path) -> None:
    assert difference(copied) is None


@pytest.mark.parametrize("change", ["changed", "added", "removed", "project", "unfinished", "missing"])
def test_a_copy_that_is_not_of_the_sources_is_known(copied: Path, change: str) -> None:
    match change:
        case "changed":
            (copied / "sources" / "module.py").write_text("number = 2\n")
        case "added":
            (copied / "sources" / "text.md").write_text("")
        case "removed":
            (copied / "sources" / "module.py").unlink()
        case "project":
            (copied / "pyproject.toml").write_text("[project]\n")
        case "unfinished":
            (copied / installed.COMPLETE).unlink()
        case "missing":
            shutil.rmtree(copied / "lib")
    assert difference(copied) is not None


def test_a_named_environment_is_never_replaced(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (copied / "sources" / "module.py").write_text("number = 2\n")
    monkeypatch.setattr(installed, "PREFIX", copied)
    monkeypatch.setattr(installed, "GIVEN", str(copied))
    with pytest.raises(installed.NotInstalled, match=r"package/module\.py has changed"):
        installed.bring_up_to_date()


def test_both_packages_are_compared() -> None:
    assert set(PACKAGES) == {"app_server", "app_server_protocol"}
    assert all(os.access(folder / "__init__.py", os.R_OK) for folder in PACKAGES.values())
