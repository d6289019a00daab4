"""The checks of doctor for the shared server, at real places."""

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from app_server.cli.doctor.checks import Check, CheckStatus
from app_server.cli.doctor.provider_checks import check_shared_server
from app_server.engine.support.filelock import hold
from app_server.engine.support.socket_paths import FOLDER, SocketPaths, place_of_home
from app_server.server.daemon.binding import BoundSocket, hold_place

VERSION = "1.2.3"


@pytest.fixture
def place(short_folder: Path) -> SocketPaths:
    return place_of_home(str(short_folder))


@pytest.fixture
def held(place: SocketPaths) -> Iterator[BoundSocket]:
    held = hold_place(place)
    yield held
    held.unlink()
    held.release()


def check(place: SocketPaths) -> Check:
    before = sorted(Path(place.folder).glob("*"))
    found = check_shared_server(place, VERSION)
    assert sorted(Path(place.folder).glob("*")) == before, "it only looks"
    return found


def test_nothing_is_made_where_none_has_ever_run(place: SocketPaths) -> None:
    assert check(place) == Check("shared server", CheckStatus.OK, "none runs")
    assert not os.path.exists(place.folder)


@pytest.mark.parametrize("version", [VERSION, "1.0"])
def test_one_that_runs_is_named_and_an_older_one_is_to_be_reloaded(held: BoundSocket, version: str) -> None:
    with held.listen({}):
        held.describe(
            json.dumps({"pid": 7, "version": version, "addresses": ["unix:///s", "ws://127.0.0.1:1"]})
        )
        found = check(held.place)
    if version == VERSION:
        assert found.status is CheckStatus.OK
        assert found.found == "version 1.2.3 runs (pid 7) on unix:///s, ws://127.0.0.1:1"
    else:
        assert found.status is CheckStatus.WARNING
        assert found.found == "version 1.0 runs (pid 7), and this is 1.2.3"
        assert "daemon reload" in found.advice


def test_one_that_cannot_be_reached_is_told_with_its_log(held: BoundSocket) -> None:
    found = check(held.place)
    assert found.status is CheckStatus.WARNING
    assert f"holds {held.place.server_lock} and cannot be reached on {held.place.socket}" in found.found
    assert held.place.log in found.advice


def test_one_that_is_being_started_is_no_fault(held: BoundSocket) -> None:
    lock = hold(held.place.startup_lock)
    assert check(held.place) == Check("shared server", CheckStatus.OK, "one is being started")
    os.close(lock)


def test_one_that_was_killed_is_in_nobodys_way(place: SocketPaths) -> None:
    held = hold_place(place)
    held.listen({}).close()
    held.release()
    found = check(place)
    assert found.status is CheckStatus.OK
    assert found.found.startswith("none runs; the socket of one that was killed is left")


def test_another_program_is_told_and_one_of_codex_is_none(place: SocketPaths) -> None:
    place.make_ready()
    with socket.socket(socket.AF_UNIX) as codex:
        codex.bind(str(place.reference))
        codex.listen()
        found = check(place)
        assert (found.status, found.found) == (
            CheckStatus.OK,
            "none runs; clients of codex find a server of codex",
        )
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(place.socket)
        other.listen()
        found = check(place)
        assert (found.status, found.found) == (
            CheckStatus.WARNING,
            f"another program listens on {place.socket}",
        )


@pytest.mark.parametrize("obstacle", ["is a link", "is no folder", "belongs to another user"])
def test_what_is_in_the_way_is_said(short_folder: Path, place: SocketPaths, obstacle: str) -> None:
    folder = short_folder / FOLDER
    if obstacle == "is a link":
        folder.symlink_to(short_folder)
    elif obstacle == "is no folder":
        folder.touch()
    elif os.geteuid() == 0:
        folder.mkdir()
        os.chown(folder, 65534, 65534)
    else:
        pytest.skip("needs root: a folder of another user")
    found = check_shared_server(place, VERSION)
    assert found.status is CheckStatus.WARNING
    assert found.found == f"none can be started: {folder} {obstacle}"


@pytest.mark.parametrize("name", ["info", "server_lock", "startup_lock"])
def test_what_is_no_file_holds_up_nobody(place: SocketPaths, name: str) -> None:
    place.make_ready()
    os.mkfifo(getattr(place, name))
    assert check(place).status is CheckStatus.OK
