"""The wheel works where it is the only thing of this repository, and where another package is called `protocol`."""

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

pytestmark = [pytest.mark.process, pytest.mark.slow]

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the wheel installs."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        (sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)),
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    [wheel] = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def run(site: Path, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the program of the wheel. `-S` keeps the sources of this repository, which are installed here, away."""
    (folder / "protocol.py").write_text("raise ImportError('another package of that name')\n")
    paths = [str(folder), str(site), sysconfig.get_paths()["purelib"], sysconfig.get_paths()["platlib"]]
    return subprocess.run(
        (sys.executable, "-S", "-c", "from app_server.__main__ import main; main()", *words),
        env={"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHONPATH": os.pathsep.join(paths)},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_it_holds_two_packages_whose_names_are_its_own(installed: Path) -> None:
    assert {each.name for each in installed.iterdir() if not each.name.endswith(".dist-info")} == {
        "app_server",
        "app_server_protocol",
    }
    assert (installed / "app_server" / "core" / "turn").is_dir()
    assert (installed / "app_server_protocol" / "export").is_dir()


def test_a_turn_with_a_command_runs(installed: Path, tmp_path: Path) -> None:
    """The launcher and the programs on the PATH of commands are started from the wheel's files."""
    done = run(installed, tmp_path, "demo", "--yes")
    assert done.returncode == 0, done.stderr
    done = run(installed, tmp_path, "exec", "--demo", "hello")
    assert (done.returncode, bool(done.stdout.strip())) == (0, True), done.stderr


def test_schemas_are_written_under_their_own_names(installed: Path, tmp_path: Path) -> None:
    done = run(installed, tmp_path, "generate-json-schema", "--out", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    for name in ("ClientRequest.json", "ServerNotification.json"):
        assert (tmp_path / "out" / name).read_bytes() == (ROOT / "schema" / name).read_bytes()
