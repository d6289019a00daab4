"""The clients that are received, how, and those that are refused. The server behind the reception is an echo."""

import asyncio
import errno
import json
import os
import socket
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from app_server.engine.support.lazy import Lazy
from app_server.server.daemon import acceptor as module
from app_server.server.daemon import listeners
from app_server.server.daemon.acceptor import Acceptor
from app_server.server.daemon.client_connections import SocketConnection
from app_server.server.daemon.listeners import Listener
from app_server.server.daemon.websocket_listener import WebSocketListener
from app_server.server.proxy.connect import preface
from app_server.server.transport.socket_streams import ALL_BYTES, SHORT_BYTES
from tests.support.proxied import received
from tests.support.receiving import Echo, dialled, receiving
from tests.support.shared import is_closed, read_line
from tests.support.shortage import open_files
from tests.support.waiting import until

PREFACE = preface(7, None, "/w", {"A": "b"}, {"options": {}})
IN_THREAD = anyio.to_thread.run_sync


async def blocking(work: Callable[[], Any]) -> Any:
    return await IN_THREAD(work, abandon_on_cancel=True)


def said(connection: socket.socket, data: bytes) -> bytes:
    connection.sendall(data)
    return read_line(connection)


async def test_lines_are_served_from_the_first_byte_on(short_folder: Path) -> None:
    async with receiving(short_folder) as (reception, place):
        with dialled(place) as client:
            client.sendall(b'{"a"')
            await until(lambda: bool(reception.present))
            assert reception.clients == []
            assert await blocking(lambda: said(client, b":1}\n")) == b'{"a":1}\n'
            assert [visit.pid for visit in reception.clients] == [os.getpid()]
        await until(lambda: not reception.present)


async def test_a_proxy_brings_what_its_client_has(short_folder: Path) -> None:
    server = Echo()
    async with receiving(short_folder, server=server) as (_, place):
        with dialled(place) as client:
            answer = json.loads(await blocking(lambda: said(client, PREFACE)))
            assert answer["ok"] is True
            assert await blocking(lambda: said(client, b"any line\n")) == b"any line\n"
        assert server.places[0].environment == {"A": "b"}
        assert server.places[0].cwd == Path("/w")


async def test_a_preface_and_what_follows_may_come_at_once(short_folder: Path) -> None:
    async with receiving(short_folder) as (_, place):
        with dialled(place) as client:
            answer = await blocking(lambda: said(client, PREFACE + b"hello\n"))
            assert json.loads(answer)["ok"] is True
            assert await blocking(lambda: read_line(client)) == b"hello\n"


async def test_a_bad_preface_is_answered(short_folder: Path) -> None:
    async with receiving(short_folder) as (_, place):
        with dialled(place) as client:
            answer = json.loads(await blocking(lambda: said(client, b'{"preface":9}\n')))
            assert answer["ok"] is False
            assert "of form 1, not 9" in answer["reason"]
            client.shutdown(socket.SHUT_WR)
            assert await blocking(lambda: is_closed(client))


async def test_first_bytes_that_begin_nothing_close_the_connection(short_folder: Path) -> None:
    async with receiving(short_folder) as (_, place):
        for begun in (b"x", b"\n", b"\x00", b"POST / HTTP/1.1\r\n\r\n", b"[]\n"):
            with dialled(place) as stranger, dialled(place) as client:
                stranger.sendall(begun)
                assert await blocking(partial(is_closed, stranger))
                assert await blocking(partial(said, client, b"{}\n")) == b"{}\n"


async def test_silent_connections_are_closed_and_hinder_nobody(
    short_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FIRST_MESSAGE_SECONDS", 1)
    async with receiving(short_folder, most=1) as (reception, place):
        silent = [dialled(place) for _ in range(600)]
        half = dialled(place)
        half.sendall(b'{"id":')
        with dialled(place) as client:
            assert await blocking(lambda: said(client, b"{}\n")) == b"{}\n"
            for each in (*silent, half):
                assert await blocking(partial(is_closed, each))
                each.close()
            assert await blocking(lambda: said(client, b"{}\n")) == b"{}\n"
        await until(lambda: not reception.present)


async def test_one_too_many_is_told_so(short_folder: Path) -> None:
    async with receiving(short_folder, most=1) as (reception, place):
        with dialled(place) as first, dialled(place) as second:
            await blocking(lambda: said(first, PREFACE))
            answer = json.loads(await blocking(lambda: said(second, PREFACE)))
            assert answer == {
                "preface": 1,
                "ok": False,
                "reason": "Server overloaded: 1 clients are connected; try again",
            }
            first.close()
            await until(lambda: reception.why_full() is None)
            with dialled(place) as third:
                assert json.loads(await blocking(lambda: said(third, PREFACE)))["ok"] is True


UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: WXgwFnftKt9zp5eCyLqJTw==\r\n\r\n"
)


@pytest.mark.parametrize("before", [b"", PREFACE], ids=["alone", "over a proxy"])
async def test_the_last_one_who_has_room_may_speak_websocket(short_folder: Path, before: bytes) -> None:
    async with receiving(short_folder, most=1) as (_, place):
        with dialled(place) as client, dialled(place) as another:
            if before:
                await blocking(lambda: said(client, before))
            assert b" 101 " in await blocking(lambda: said(client, UPGRADE))
            assert b" 503 " in await blocking(lambda: said(another, UPGRADE))


async def test_without_descriptors_it_waits_and_then_goes_on(
    short_folder: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listeners, "SHORTAGE_SECONDS", 0.05)
    async with receiving(short_folder) as (_, place):
        waiting = [dialled(place) for _ in range(3)]
        with open_files(0):
            await until(lambda: "no connection can be accepted" in caplog.text)
            before = time.process_time()
            await anyio.sleep(0.5)
            spent = time.process_time() - before
        assert spent < 0.25, "it spins"
        for each in waiting:
            assert await blocking(partial(said, each, b"{}\n")) == b"{}\n"
            each.close()
    told = [record for record in caplog.records if "no connection" in record.message]
    assert len(told) == 1
    assert os.strerror(errno.EMFILE) in told[0].message


async def test_a_connection_that_fails_takes_no_other_along(
    short_folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(*_: object, **more: object) -> None:
        raise RuntimeError("a fault of ours")

    server = Echo()
    async with receiving(short_folder, server=server) as (_, place):
        with dialled(place) as good:
            await blocking(lambda: said(good, b"{}\n"))
            monkeypatch.setattr(server, "serve", fail)
            with dialled(place) as bad:
                bad.sendall(b"{}\n")
                bad.shutdown(socket.SHUT_WR)
                assert await blocking(lambda: is_closed(bad))
            assert await blocking(lambda: said(good, b"{}\n")) == b"{}\n"
    assert "a connection failed" in caplog.text


async def test_a_long_line_that_has_no_end_holds_up_long_ones_only_and_only_while_its_client_is_there(
    short_folder: Path,
) -> None:
    long = b"{" + b"x" * SHORT_BYTES
    async with receiving(short_folder, line_limit=ALL_BYTES) as (reception, place):
        with dialled(place) as holder, dialled(place) as waiting, dialled(place) as third:
            await blocking(partial(holder.sendall, long))
            await until(lambda: any(takes_room(reception)))
            await blocking(lambda: waiting.sendall(long + b"\n"))
            assert await blocking(lambda: said(third, b"{}\n")) == b"{}\n"
            assert takes_room(reception).count(True) == 1
            holder.close()
            assert await blocking(lambda: received(waiting, len(long) + 1)) == long + b"\n"


def takes_room(reception: Acceptor) -> list[bool]:
    return [each.slot.is_taken for each in reception.clients if isinstance(each, SocketConnection)]


async def test_a_client_that_drops_leaves_nothing(short_folder: Path) -> None:
    async with receiving(short_folder) as (reception, place):
        await dropped(reception, lambda: dialled(place))
        files, tasks = descriptors_and_tasks()
        for _ in range(20):
            await dropped(reception, lambda: dialled(place))
        await until(lambda: (now := descriptors_and_tasks())[0] <= files and now[1] <= tasks)
        assert reception.clients == []


def descriptors_and_tasks() -> tuple[int, int]:
    return len(os.listdir("/proc/self/fd")), len(asyncio.all_tasks())


async def dropped(reception: Acceptor, dial: Callable[[], socket.socket]) -> None:
    """Open connections that end at each stage, at once, and then one that is served: all were accepted."""

    def drop() -> None:
        for data in (b"", b"{", b'{"pre', PREFACE[:-1], PREFACE, PREFACE + b"{", b"{}\n", b"G", b"x"):
            for _ in range(5):
                with dial() as connection:
                    connection.sendall(data)
        with dial() as last:
            last.sendall(b"{}\n")
            received(last, len(b"{}\n"))

    thread = threading.Thread(target=drop)
    thread.start()
    await until(lambda: not thread.is_alive())
    thread.join()
    await until(lambda: not reception.present)


async def test_strangers_over_tcp_are_few_and_the_oldest_makes_room(
    short_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_STRANGERS", 3)
    async with receiving(short_folder) as (reception, place):
        listening = socket.create_server(("127.0.0.1", 0))
        listening.setblocking(False)
        http = WebSocketListener(port=None, token_sha256=None, line_limit=1 << 20)
        door = Listener(socket.socket(), "ws://127.0.0.1:0", Lazy(lambda: http))
        with dialled(place) as client:
            await blocking(lambda: said(client, b"{}\n"))  # the reception runs
        reception.replace(door, listening)
        reception.doors.append(door)
        silent = []
        for count in (1, 2, 3):
            silent.append(socket.create_connection(listening.getsockname()))
            await until(partial(lambda count: len(reception.present) == count, count))
        with socket.create_connection(listening.getsockname()) as client:
            assert b" 101 " in await blocking(lambda: said(client, UPGRADE))
            silent[0].settimeout(30)
            assert await blocking(lambda: silent[0].recv(1)) == b""
            more = [socket.create_connection(listening.getsockname()) for _ in range(9)]
            await until(lambda: reception.last_number == 14)
            await until(lambda: len(reception.present) == 4)
            assert len(reception.clients) == 1, "one with a token is none of them"
        for each in (*silent, *more):
            each.close()


async def test_connections_leave_descriptors_for_what_clients_need(
    short_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with receiving(short_folder) as (reception, place):
        monkeypatch.setattr(module, "has_descriptors_left", lambda count: False)
        with dialled(place) as client:
            answer = json.loads(await blocking(lambda: said(client, PREFACE)))
            assert answer["ok"] is False
            assert "too few file descriptors" in answer["reason"]
        await until(lambda: not reception.present)


def test_what_is_left_of_descriptors_is_counted() -> None:
    assert module.has_descriptors_left(64)
    with open_files(0):
        assert not module.has_descriptors_left(64)


async def test_a_long_preface_in_pieces_is_searched_once(short_folder: Path) -> None:
    """Each piece is searched once: searching all bytes for each piece would take minutes."""
    line = preface(7, None, "/w", {"A": "b" * (1 << 20)}, {"options": {}})
    searched = 0

    class Counting(bytearray):
        def __contains__(self, item: object) -> bool:
            nonlocal searched
            searched += len(self)
            return super().__contains__(item)  # type: ignore[operator]

    async with receiving(short_folder) as (reception, place):
        with dialled(place) as client:
            client.sendall(line[:1])
            await until(lambda: bool(reception.present))
            [arrival] = reception.present.values()
            assert isinstance(arrival, SocketConnection)
            arrival.said = Counting(arrival.said)
            assert json.loads(await blocking(lambda: said(client, line[1:])))["ok"] is True
    assert searched <= 1
