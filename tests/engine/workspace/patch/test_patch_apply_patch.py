"""`apply_patch` as a program that commands find on their PATH."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from app_server.engine.sandbox.exec import shell_setup
from app_server.engine.sandbox.exec.shell_setup import Programs, install
from app_server.engine.support.helpers import apply_patch_command
from tests.support.shortage import open_files

ADD = "*** Begin Patch\n*** Add File: {}\n+{}\n*** End Patch\n"
SHELL_PATH = os.defpath

pytestmark = pytest.mark.isolated


@pytest.fixture
def ws(tmp_path: Path) -> Path:
    for name in ("ws", "home"):
        (tmp_path / name).mkdir()
    return tmp_path / "ws"


def shell(ws: Path, script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = Programs(sys.executable, str(ws.parent / "home")).added_to({"PATH": SHELL_PATH, **environment})
    return subprocess.run(
        ["/bin/sh", "-c", script], cwd=ws, env=kept, capture_output=True, text=True, check=False
    )


def files(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


@pytest.mark.parametrize(
    "script",
    [
        "echo first; apply_patch <<'EOF'\n" + ADD.format("new", "x") + "EOF\n",
        "apply_patch <<EOF && echo done\n" + ADD.format("new", "x") + "EOF\n",
        "apply_patch < ../patch",
        'apply_patch "$(cat ../patch)"',
        "cat ../patch | applypatch",
        "env LC_ALL=C xargs -0 apply_patch < ../patch",
    ],
)
def test_every_way_to_call_it(ws: Path, script: str) -> None:
    (ws.parent / "patch").write_text(ADD.format("new", "x"))
    done = shell(ws, script)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Success. Updated the following files:\nA new\n" in done.stdout
    assert files(ws) == {"new": "x\n"}


def test_all_of_it_or_nothing(ws: Path) -> None:
    (ws / "old").write_text("one\n")
    patch = "*** Begin Patch\n*** Add File: new\n+x\n*** Update File: old\n@@\n-two\n+2\n*** End Patch"
    done = shell(ws, 'apply_patch "$PATCH"', PATCH=patch)
    assert (done.returncode, done.stdout) == (1, "")
    assert "Failed to find expected lines" in done.stderr
    assert files(ws) == {"old": "one\n"}


@pytest.mark.parametrize("locale", ["C", "POSIX", "en_US.ISO-8859-1", "C.UTF-8"])
def test_names_and_text_are_utf8_in_every_locale(ws: Path, locale: str) -> None:
    done = shell(ws, 'apply_patch "$PATCH"', PATCH=ADD.format("größe", "ü"), LC_ALL=locale)
    assert (done.returncode, done.stderr) == (0, "")
    assert files(ws) == {"größe": "ü\n"}


@pytest.mark.parametrize(
    ("script", "status", "told"),
    [
        ("apply_patch a b", 2, "takes one argument"),
        ("apply_patch < /dev/null", 2, "Usage: "),
        ("apply_patch nonsense", 1, "'*** Begin Patch'"),
        ("printf '\\377' | apply_patch", 1, "not UTF-8"),
        ("apply_patch < /dev/zero", 1, "longer than"),
        ("apply_patch '*** Begin Patch\n*** End Patch'", 1, "empty"),
        ("mkdir gone && cd gone && rmdir ../gone && apply_patch < ../../patch", 1, "No such file"),
    ],
)
def test_errors_are_printed(ws: Path, script: str, status: int, told: str) -> None:
    (ws.parent / "patch").write_text(ADD.format("new", "x"))
    done = shell(ws, script)
    assert done.returncode == status
    assert told in done.stderr
    assert "Traceback" not in done.stderr
    assert files(ws) == {}


def test_nobody_needs_to_read_the_answer(ws: Path) -> None:
    (ws.parent / "patch").write_text(ADD.format("new", "x"))
    done = shell(ws, "apply_patch < ../patch >&-; apply_patch < ../patch 2>&- >&-; echo $?")
    assert (done.stdout, done.stderr) == ("0\n", "")
    assert files(ws) == {"new": "x\n"}


def test_leftovers_that_a_command_may_have_forged_are_left_alone(ws: Path) -> None:
    journal = ws / ".apply-patch-forged.journal"
    step = {"folder": str(ws), "name": "victim", "temp": ".apply-patch-x", "staged": None}
    journal.write_text(json.dumps(step) + "\n")
    shell(ws, 'apply_patch "$PATCH"', PATCH=ADD.format("new", "x"))
    assert journal.exists()


def test_it_imports_the_standard_library_and_its_own_package_only() -> None:
    imports, _, _ = apply_patch_command(sys.executable)[-1].rpartition(";")
    command = [sys.executable, "-I", "-S", "-c", f"{imports}; print(*sys.modules)"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    ours = {name for name in done.stdout.split() if name.partition(".")[0] not in sys.stdlib_module_names}
    rest = {name for name in ours if not name.startswith("app_server.engine.workspace.patch")} - {"__main__"}
    assert rest <= {
        "__main__",
        "app_server",
        "app_server.engine.support.rooted_fs",
        "app_server.engine",
        "app_server.engine.support",
        "app_server.engine.workspace",
        "app_server.engine.support.engine_errors",
        "app_server.engine.support.real_path",
        "app_server.engine.support.light_dataclasses",
        "app_server_protocol.engine",
        "app_server_protocol.engine.errors",
        "app_server_protocol",
    }


# --- where it lies
def test_the_folder_is_made_once_and_made_again_where_it_is_gone(tmp_path: Path) -> None:
    kept = Programs(sys.executable, str(tmp_path))
    first = kept.added_to({"PATH": "/bin"})["PATH"]
    folder = Path(first.partition(":")[0])
    assert first == f"{folder}:/bin"
    assert sorted(path.name for path in folder.iterdir()) == ["apply_patch", "applypatch"]
    (folder / "applypatch").unlink()
    assert kept.added_to({"PATH": "/bin"})["PATH"] == first
    assert (folder / "applypatch").exists()


def test_without_a_path_there_is_none_afterwards(tmp_path: Path) -> None:
    kept = Programs(sys.executable, str(tmp_path))
    assert kept.added_to({"HOME": "/"}) == {"HOME": "/"}
    assert kept.added_to({"PATH": ""}) == {"PATH": ""}


def test_what_somebody_put_in_its_place_is_replaced(tmp_path: Path) -> None:
    folder = Path(install(str(tmp_path), sys.executable))
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (folder / "apply_patch").unlink()
    (folder / "apply_patch").symlink_to(victim)
    (folder / "applypatch").write_text("#!/bin/sh\necho gotcha\n")
    assert install(str(tmp_path), sys.executable) == str(folder)
    for name in shell_setup.NAMES:
        assert not (folder / name).is_symlink()
        assert (folder / name).read_text() == shell_setup.script(sys.executable)
    assert victim.read_text() == "mine"


def test_a_shortage_is_no_reason_to_go_without(tmp_path: Path) -> None:
    kept = Programs(sys.executable, str(tmp_path))
    with open_files(0):
        assert kept.added_to({"PATH": "/bin"}) == {"PATH": "/bin"}
    assert kept.added_to({"PATH": "/bin"})["PATH"].endswith(":/bin")


@pytest.mark.parametrize("case", ["a link", "a file"])
def test_a_folder_that_is_not_ours_alone_is_not_used(tmp_path: Path, case: str) -> None:
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    home.mkdir()
    elsewhere.mkdir()
    temporary = home / "tmp"
    match case:
        case "a link":
            temporary.symlink_to(elsewhere)
        case _:
            temporary.touch()
    environment = {"PATH": "/bin"}
    assert Programs(sys.executable, str(home)).added_to(environment) == environment
    assert list(elsewhere.iterdir()) == []


def test_a_folder_that_was_open_to_all_is_put_right_with_what_it_holds(tmp_path: Path) -> None:
    planted = Path(install(str(tmp_path), sys.executable)) / "apply_patch"
    twin = tmp_path / "twin"
    os.link(planted, twin)
    (tmp_path / "tmp").chmod(0o777)
    folder = Path(install(str(tmp_path), sys.executable))
    assert stat.S_IMODE((tmp_path / "tmp").stat().st_mode) == 0o700
    assert not (folder / "apply_patch").samefile(twin)  # a holder of the other name could change it
    assert (folder / "apply_patch").read_text() == shell_setup.script(sys.executable)


def test_an_unwritable_home_only_omits_the_program(tmp_path: Path) -> None:
    environment = {"PATH": "/bin"}
    assert Programs(sys.executable, str(tmp_path / "missing")).added_to(environment) == environment
