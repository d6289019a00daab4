"""The place of a shared server, and what may exist there."""

import os
import stat
from pathlib import Path

import pytest

from app_server.engine.support.home import home_folder
from app_server.engine.support.socket_paths import (
    LONGEST_ADDRESS,
    BadSocketPath,
    fits,
    named_place,
    place_at,
    place_of_home,
)

NOBODY = 65534


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_folder_of_a_home_is_made_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        place_of_home(str(tmp_path / "new" / "home")).make_ready()
    finally:
        os.umask(before)
    assert mode(tmp_path / "new" / "home" / "app-server-control") == 0o700


def test_rights_of_others_are_taken_from_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "app-server-control"
    folder.mkdir()
    folder.chmod(0o777)
    place_of_home(str(tmp_path)).make_ready()
    assert mode(folder) == 0o700


def test_a_folder_that_is_a_link_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o755)
    (tmp_path / "app-server-control").symlink_to(tmp_path / "real")
    with pytest.raises(BadSocketPath, match=r"app-server-control is a link$"):
        place_of_home(str(tmp_path)).make_ready()
    assert mode(tmp_path / "real") == 0o755


def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "app-server-control").touch()
    with pytest.raises(BadSocketPath, match=r"is no folder$"):
        place_of_home(str(tmp_path)).make_ready()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a folder of another user")
def test_a_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "app-server-control"
    folder.mkdir(mode=0o700)
    os.chown(folder, NOBODY, NOBODY)
    with pytest.raises(BadSocketPath, match=r"belongs to another user$"):
        place_of_home(str(tmp_path)).make_ready()
    with pytest.raises(BadSocketPath, match=r"belongs to another user$"):
        named_place(str(folder / "s")).make_ready()


def test_the_folder_of_a_named_socket_is_looked_at_and_not_changed(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    place = named_place(str(folder / "s"))
    with pytest.raises(BadSocketPath, match=r"does not exist$"):
        place.make_ready()
    folder.mkdir()
    folder.chmod(0o755)
    place.make_ready()
    folder.chmod(0o775)
    with pytest.raises(BadSocketPath, match="others may write"):
        place.make_ready()
    assert mode(folder) == 0o775


@pytest.mark.parametrize("path", ["s", "./s", "", "/", "/tmp/", "/tmp/s\0"])
def test_a_named_socket_needs_an_absolute_path(path: str) -> None:
    with pytest.raises(BadSocketPath, match="needs an absolute path"):
        named_place(path)


def test_the_socket_of_the_home_is_its_place_also_by_its_path(tmp_path: Path) -> None:
    ours = place_of_home(str(tmp_path))
    assert place_at(str(tmp_path), ours.socket).listen == place_at(str(tmp_path), None).listen == "unix://"
    assert place_at(str(tmp_path), "/run/s").listen == "unix:///run/s"


def test_a_link_leads_clients_to_a_socket_whose_path_is_too_long(tmp_path: Path) -> None:
    home = tmp_path / ("h" * LONGEST_ADDRESS)
    place = place_of_home(str(home))
    assert not fits(place.socket)
    assert place.address() is None
    place.make_ready()
    os.symlink("/run/short.sock", place.socket)
    assert place.address() == "/run/short.sock"


def test_the_home_is_the_named_one_or_in_that_of_the_user(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    assert home_folder({"CODEX_HOME": str(tmp_path / "link"), "HOME": "/x"}) == str(tmp_path)
    assert home_folder({"HOME": str(tmp_path)}) == str(tmp_path / ".codex")
