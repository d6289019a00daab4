"""The folders for the sockets of shared servers, which all servers of a home know."""

import os
from pathlib import Path

import pytest

from app_server.engine.sandbox.make_plan import make_plan
from app_server.engine.sandbox.plan import HAS_SOCKET, RootFacts, SandboxFacts
from app_server.engine.storage.batch_folders import note
from app_server.engine.storage.socket_folders import announce, socket_folders
from app_server.engine.support.filelock import hold
from app_server.engine.support.socket_paths import named_place, place_of_home, usual_folder
from app_server.server.composition import command_runner
from app_server.server.daemon.binding import hold_place
from app_server.server.server_settings import ServerSettings
from app_server_protocol.policy import WorkspaceWrite


@pytest.fixture
def home(short_folder: Path) -> str:
    return str(short_folder / "home")


def test_folders_that_need_not_be_there(home: str) -> None:
    assert socket_folders(home, "/run/user/7").usual == (usual_folder(), "/run/user/7/app-server")
    assert socket_folders(home, None).usual == socket_folders(home, "relative").usual == (usual_folder(),)


def test_the_folder_of_a_named_socket_is_known_as_long_as_its_server_lives(
    home: str, short_folder: Path
) -> None:
    folder = short_folder / "run"
    folder.mkdir(0o700)
    held = hold_place(named_place(str(folder / "s")), home=home)
    assert str(folder) not in socket_folders(home, None).existing
    listening = held.listen({})
    assert str(folder) in socket_folders(home, None).existing
    listening.close()
    held.unlink()
    held.release()
    assert str(folder) not in socket_folders(home, None).existing
    assert os.listdir(os.path.join(place_of_home(home).folder, "places")) == []


def test_a_server_that_was_killed_keeps_no_folder(home: str, short_folder: Path) -> None:
    place = named_place(str(short_folder / "s"))
    announce(home, place)
    lock = hold(place.server_lock)
    assert str(short_folder) in socket_folders(home, None).existing
    os.close(lock)
    assert str(short_folder) not in socket_folders(home, None).existing


def test_the_folder_of_a_socket_is_read_only_in_a_root_and_no_root_itself() -> None:
    roots = (RootFacts("/ws", "/ws"), RootFacts("/run/me", "/run/me"), RootFacts("/run/me/ws", "/run/me/ws"))
    facts = SandboxFacts(home="/home", roots=roots, sockets=("/ws/run/s", "/run/me"), reserved=("/ws/later",))
    plan = make_plan(WorkspaceWrite(), facts)
    assert plan is not None
    assert plan.writable_roots == ("/ws", "/run/me/ws")
    assert "/ws/run/s" in plan.protected
    assert "/ws/run" in plan.pinned
    assert "/ws/later" in plan.reserved
    assert any(HAS_SOCKET in notice for notice in plan.notices)


async def test_the_runner_of_a_server_knows_the_folders_of_its_home(home: str, short_folder: Path) -> None:
    os.mkdir(home)
    out = short_folder / "batch"
    out.mkdir()
    note(home, str(out), b"{}")
    settings = ServerSettings(
        home=Path(home), cwd=short_folder, environment={"XDG_RUNTIME_DIR": "/run/user/7"}
    )
    plan = command_runner(settings).plan(WorkspaceWrite(), str(short_folder))
    assert plan is not None
    assert str(out) in plan.protected
