"""The end of a shared server: when it leaves, and that no client meets that moment."""

import os
import random
import shutil
import threading
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from app_server.engine.config.config_values import SharingSettings
from app_server.engine.support.filelock import LockHeld, hold
from app_server.engine.support.socket_paths import SocketPaths, named_place
from app_server.server.daemon import shutdown
from app_server.server.daemon.acceptor import Acceptor
from app_server.server.daemon.shutdown import Shutdown
from app_server.server.proxy.connect import is_there, meet, preface
from tests.support.places import LONG
from tests.support.receiving import Echo, dialled, lifetime_of
from tests.support.waiting import until

PREFACE = preface(7, None, "/w", {}, {"options": {}})
AT_ONCE = SharingSettings(idle_exit_minutes=1e-6)
NEVER = SharingSettings(idle_exit_minutes=0)
SEED = os.environ.get("FAULTS_SEED") or str(random.randrange(1 << 32))
CONNECTS = 1000 if LONG else 200
CLIENTS = 4


def nothing() -> None:
    """Notify no one."""


async def test_it_leaves_when_nobody_needs_it(short_folder: Path) -> None:
    lifetime, reception, place = lifetime_of(short_folder, AT_ONCE)
    await ended(lifetime, reception)
    assert not os.path.lexists(place.socket)
    os.close(hold(place.server_lock))


async def test_it_leaves_where_its_folder_was_deleted(short_folder: Path) -> None:
    """The lock that excludes clients which connect is gone with the folder."""
    lifetime, reception, place = lifetime_of(short_folder, AT_ONCE)
    shutil.rmtree(short_folder)
    await ended(lifetime, reception)
    assert not os.path.lexists(place.folder), "the end makes nothing anew"


async def test_without_an_idle_exit_it_leaves_once_no_client_can_find_it(
    short_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutdown, "LONGEST_LOOK", 1e-4)
    lifetime, reception, place = lifetime_of(short_folder, NEVER)
    async with anyio.create_task_group() as group:
        group.start_soon(reception.run)
        group.start_soon(lifetime.run, nothing)
        connection = dialled(place)
        connection.sendall(PREFACE)
        await until(lambda: bool(reception.clients))
        shutil.rmtree(short_folder)
        await anyio.sleep(0.1)  # a thousand times its interval
        assert not reception.closed, "a client is still served"
        connection.close()
        await until(lambda: reception.closed)
        group.cancel_scope.cancel()


async def test_a_server_whose_folder_was_deleted_leaves_the_next_one_its_place(short_folder: Path) -> None:
    lifetime, reception, place = lifetime_of(short_folder, AT_ONCE)
    shutil.rmtree(short_folder)
    short_folder.mkdir(0o700)
    _, next_reception, _ = lifetime_of(short_folder, NEVER)
    await ended(lifetime, reception)
    assert os.path.lexists(place.socket)
    with pytest.raises(LockHeld):
        hold(place.server_lock)
    next_reception.stop_listening()


async def ended(lifetime: Shutdown, reception: Acceptor) -> None:
    """Serve until the server ends by itself."""
    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            group.start_soon(reception.run)
            await lifetime.run(nothing)
            group.cancel_scope.cancel()


@pytest.mark.parametrize("reason", ["a client", "a silent connection", "work", "a start"])
async def test_it_stays_while_there_is_a_reason(short_folder: Path, reason: str) -> None:
    server = Echo()
    lifetime, reception, place = lifetime_of(short_folder, AT_ONCE, server)
    held = -1
    async with anyio.create_task_group() as group:
        group.start_soon(reception.run)
        if reason == "work":
            server.work = server.work.__class__(conversations=1, turns=1, questions=0, commands=0)
        if reason == "a start":
            held = hold(place.startup_lock)
        connection = dialled(place) if "c" in reason.split()[-1] else None
        if connection is not None and reason == "a client":
            connection.sendall(PREFACE)
        group.start_soon(lifetime.run, nothing)
        await anyio.sleep(0.1)  # a thousand times its waiting time
        assert os.path.lexists(place.socket)
        with pytest.raises(LockHeld):
            hold(place.server_lock)
        if connection is not None:
            connection.close()
        if held >= 0:
            os.close(held)
        server.work = Echo.work
        await until(lambda: not os.path.lexists(place.socket))
        group.cancel_scope.cancel()


async def test_a_stop_closes_who_was_not_served_yet(short_folder: Path) -> None:
    """So a proxy finds the next server, which has the place at once."""
    lifetime, reception, place = lifetime_of(short_folder, NEVER)
    async with anyio.create_task_group() as group:
        group.start_soon(reception.run)
        group.start_soon(lifetime.run, nothing)
        early = dialled(place)
        await until(lambda: bool(reception.present))
        lifetime.stop()
        assert not os.path.lexists(place.socket)
        os.close(hold(place.server_lock))
        early.sendall(PREFACE)
        assert await anyio.to_thread.run_sync(early.recv, 1) == b""
        early.close()
        group.cancel_scope.cancel()


class Starter:
    """Starter of servers in the event loop of the test, one at a time as a process does, for clients in threads."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.place: SocketPaths = named_place(str(folder / "s"))
        self.wanted = threading.Event()
        self.started = 0
        self._ready = threading.Event()

    def start(self) -> None:
        """Hold the lock, check again, and wait for a server that answers. `meet` calls it."""
        lock = hold(self.place.startup_lock, 30)
        try:
            if not is_there(self.place):
                self._ready.clear()
                self.wanted.set()
                assert self._ready.wait(30)
        finally:
            os.close(lock)

    async def run(self) -> None:
        while True:
            await until(self.wanted.is_set)
            self.wanted.clear()
            lifetime, reception, _ = lifetime_of(self._folder, AT_ONCE)
            self.started += 1
            async with anyio.create_task_group() as group:
                group.start_soon(reception.run)
                await lifetime.run(self._ready.set)
                group.cancel_scope.cancel()


async def test_no_client_meets_the_end_of_a_server(short_folder: Path) -> None:
    """Servers leave as soon as they are idle, and clients come at random moments around that one."""
    starter = Starter(short_folder)
    failures: list[BaseException] = []
    answered = 0

    def connect(seed: str) -> None:
        nonlocal answered
        draw = random.Random(seed)
        for _ in range(CONNECTS // CLIENTS):
            together.wait()
            threading.Event().wait(draw.random() * 0.01)
            try:
                meet(starter.place, PREFACE, starter.start).close()
                answered += 1
            except BaseException as error:
                failures.append(error)

    together = threading.Barrier(CLIENTS)
    threads = [threading.Thread(target=connect, args=(f"{SEED} {n}",)) for n in range(CLIENTS)]
    async with anyio.create_task_group() as group:
        group.start_soon(starter.run)
        for thread in threads:
            thread.start()
        await until(lambda: not any(thread.is_alive() for thread in threads), f"seed {SEED}")
        group.cancel_scope.cancel()
    assert failures == [], f"seed {SEED}"
    assert answered == CONNECTS
    assert starter.started > 2, "servers hardly ever left; how often depends on what else the machine does"
