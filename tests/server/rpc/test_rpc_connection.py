"""Lines become calls, results become answers; overload is reported to the client; answers find the server's requests by
id.
"""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from functools import partial

import anyio
import anyio.lowlevel

from app_server.server.rpc.lanes import LaneName, ServerLanes
from app_server.server.rpc.outgoing import ClientReply, OutboundQueue, PendingRequests, describe
from app_server.server.rpc.rpc_connection import LINES_AT_ONCE, Connection, RoutedRequest, RpcReply
from app_server.server.transport.memory import MemoryTransport, memory_pair
from app_server_protocol.encoding import Json
from app_server_protocol.framing import Oversized
from app_server_protocol.jsonrpc import Request
from app_server_protocol.rpc_errors import RpcError, internal_error, invalid_request, not_found, overloaded


class Echo:
    """Methods: `echo`, `wait` (until released), `fail`, `refuse`. The lane is the parameter `lane`; upper case stands
    for all.
    """

    def __init__(self) -> None:
        self.go = anyio.Event()
        self.order: list[int | str] = []
        self.told: list[str] = []
        self.received: list[Json] = []
        """Parameters of received notifications."""

    def route(self, request: Request) -> RoutedRequest:
        if request.method == "unordered":
            raise invalid_request("no lane", "unordered")
        name = (request.params or {}).get("lane")
        lane = None if name is None else LaneName(name, for_all=name.isupper())
        return RoutedRequest(partial(self.serve, request), lane)

    async def serve(self, request: Request) -> RpcReply:
        if request.method == "wait":
            await self.go.wait()
        if request.method == "fail":
            raise RuntimeError("secret details")
        if request.method == "refuse":
            raise invalid_request("no", "refused")
        self.order.append(request.id)
        if request.method != "effects":
            return RpcReply(json.dumps(request.params).encode())
        effects = self.effects()
        return RpcReply(await anext(effects), effects)

    async def effects(self) -> AsyncGenerator[bytes, None]:
        try:
            yield b"{}"
            self.told.append("effect")
            await self.go.wait()
            self.told.append("later")
        finally:
            self.told.append("closed")

    async def receive_notification(self, method: str, params: Json) -> None:
        self.told.append(method)
        self.received.append(params)
        if method == "broken":
            raise RuntimeError

    def to_rpc_error(self, error: BaseException, method: str) -> RpcError:
        return error if isinstance(error, RpcError) else internal_error(f"{method}: internal error")


class Talk:
    """Connection with the client's end of it."""

    def __init__(self, end: MemoryTransport, outgoing: OutboundQueue, echo: Echo) -> None:
        self.end, self.outgoing, self.echo = end, outgoing, echo
        self.answers: list[Json] = []

    async def send(self, *messages: Json | bytes) -> None:
        lines = [m if isinstance(m, bytes) else json.dumps(m).encode() for m in messages]
        await self.end.write(b"\n".join(lines) + b"\n")

    async def read(self) -> None:
        async for lines in self.end.lines():
            self.answers += [json.loads(line) for line in lines if isinstance(line, bytes)]

    def answer(self, id: int) -> Json:
        (found,) = [answer for answer in self.answers if answer["id"] == id]
        return found


async def talk(
    what: Callable[[Talk], Awaitable[None]], *, most: int = 100, line_limit: int = 1000, unread: int = 1000
) -> Talk:
    server, client = memory_pair(line_limit, buffered=1)
    echo = Echo()
    outgoing = OutboundQueue(server.write, unread)
    talking = Talk(client, outgoing, echo)
    async with anyio.create_task_group() as group:
        group.start_soon(outgoing.write_queued)

        async def serve() -> None:
            await Connection(server.lines(), outgoing, echo, most).serve()
            await outgoing.finish()
            server.close()

        group.start_soon(serve)
        await what(talking)
        client.close()
        group.start_soon(talking.read)
    return talking


async def test_requests_beyond_the_limit_are_refused_and_may_be_sent_again() -> None:
    async def what(t: Talk) -> None:
        await t.send(*({"id": n, "method": "wait", "params": {}} for n in range(5)))
        await anyio.wait_all_tasks_blocked()
        t.echo.go.set()
        await anyio.wait_all_tasks_blocked()
        await t.send({"id": 9, "method": "echo", "params": {"a": 1}})
        await anyio.wait_all_tasks_blocked()

    talked = await talk(what, most=3)
    refused = [answer for answer in talked.answers if "error" in answer]
    assert [answer["id"] for answer in refused] == [3, 4]
    assert refused[0]["error"]["code"] == -32001
    assert refused[0]["error"]["data"] == {"kind": "overloaded", "retryable": True}
    assert talked.answer(9)["result"] == {"a": 1}


async def test_one_lane_is_served_in_order_and_others_pass_it() -> None:
    async def what(t: Talk) -> None:
        await t.send(
            {"id": 1, "method": "wait", "params": {"lane": "a"}},
            {"id": 2, "method": "echo", "params": {"lane": "a"}},
            {"id": 3, "method": "echo", "params": {"lane": "b"}},
        )
        await anyio.wait_all_tasks_blocked()
        assert t.echo.order == [3]
        t.echo.go.set()
        await anyio.wait_all_tasks_blocked()

    assert (await talk(what)).echo.order == [3, 1, 2]


async def test_effects_follow_the_response_in_the_same_step() -> None:
    """Nothing that another task sends comes between them."""

    async def what(t: Talk) -> None:
        async def effects() -> AsyncGenerator[bytes, None]:
            yield b"{}"
            t.outgoing.notify("effect", b"{}")

        async def other() -> None:
            while not t.echo.order:
                await anyio.lowlevel.checkpoint()
            t.outgoing.notify("other", b"{}")

        t.echo.effects = effects  # type: ignore[method-assign]
        async with anyio.create_task_group() as group:
            group.start_soon(other)
            await t.send({"id": 1, "method": "effects", "params": {}})
        await anyio.wait_all_tasks_blocked()

    answers = (await talk(what)).answers
    assert [each.get("method", each.get("id")) for each in answers] == [1, "effect", "other"]


async def test_effects_that_wait_end_when_the_client_leaves() -> None:
    async def what(t: Talk) -> None:
        await t.send({"id": 3, "method": "effects", "params": {}})
        await anyio.wait_all_tasks_blocked()
        assert t.echo.told == ["effect"]
        t.end.close()
        await anyio.wait_all_tasks_blocked()
        assert t.echo.told == ["effect", "closed"]

    await talk(what)


async def test_effects_end_with_their_generator() -> None:
    async def what(t: Talk) -> None:
        t.echo.go.set()
        await t.send({"id": 3, "method": "effects", "params": {}})
        await anyio.wait_all_tasks_blocked()
        assert t.echo.told == ["effect", "later", "closed"]

    await talk(what)


async def test_a_line_that_is_too_long_is_reported_and_the_next_is_served() -> None:
    async def what(t: Talk) -> None:
        await t.send(b"x" * 5000, {"id": 1, "method": "echo", "params": {}})
        await anyio.wait_all_tasks_blocked()

    too_long, served = (await talk(what)).answers
    assert too_long["error"]["code"] == -32700
    assert too_long["error"]["data"] == {"kind": "line_too_long"}
    assert "5000" in too_long["error"]["message"]
    assert served["result"] == {}


async def test_a_line_that_had_no_room_beside_those_of_others_may_be_sent_again() -> None:
    async def lines() -> AsyncIterator[list[Oversized]]:
        yield [Oversized(7, crowded=True)]

    server, client = memory_pair()
    outgoing = OutboundQueue(server.write, 1000)
    async with anyio.create_task_group() as group:
        group.start_soon(outgoing.write_queued)
        await Connection(lines(), outgoing, Echo(), 10).serve()
        await outgoing.finish()
        (line,) = await anext(client.lines())
    assert isinstance(line, bytes)
    error = json.loads(line)["error"]
    assert (error["code"], error["data"]) == (-32001, {"kind": "overloaded", "retryable": True})
    assert "7 bytes" in error["message"]


async def test_no_requests_are_read_while_the_client_reads_no_responses() -> None:
    """Otherwise the answers to the client's own requests would fill the memory."""

    async def what(t: Talk) -> None:
        for n in range(40):
            with anyio.move_on_after(1) as scope:
                await t.send(
                    *({"id": f"{n}.{k}", "method": "echo", "params": {"text": "x" * 100}} for k in range(10))
                )
            if scope.cancelled_caught:
                break
        sent.append(n)

    sent: list[int] = []
    talked = await talk(what, unread=2000)
    assert sent[0] < 39
    assert len(talked.answers) >= 10 * sent[0]


async def test_failures_of_handlers_are_answered_and_affect_no_other_request() -> None:
    async def what(t: Talk) -> None:
        await t.send(
            {"id": 1, "method": "fail"},
            {"id": 2, "method": "refuse"},
            {"method": "broken"},
            b"\xff\xfe",
            b"{",
            b"",
            {"id": 3, "method": "echo", "params": {}},
        )
        await anyio.wait_all_tasks_blocked()

    talked = await talk(what)
    assert talked.answer(1)["error"]["message"] == "fail: internal error"
    assert talked.answer(2)["error"]["data"]["kind"] == "refused"
    assert talked.answer(3)["result"] == {}
    assert [a["error"]["code"] for a in talked.answers if a["id"] is None] == [-32700, -32700]
    assert talked.echo.told == ["broken"]


async def test_others_run_while_very_many_lines_are_taken_in() -> None:
    batches: list[int] = []
    unused = [b""] * (LINES_AT_ONCE * 10)

    async def lines() -> AsyncIterator[list[bytes]]:
        yield unused

    async def others() -> None:
        for n in range(10):
            await anyio.lowlevel.checkpoint()
            batches.append(n)

    async def write(data: bytes) -> None:
        raise AssertionError("nothing was asked")

    async with anyio.create_task_group() as group:
        group.start_soon(others)
        await Connection(lines(), OutboundQueue(write, 1000), Echo(), 1).serve()
        assert len(batches) >= 8


async def test_a_flood_of_one_client_keeps_others_waiting_for_one_request_at_a_time() -> None:
    """A turn of the event loop serves each connection once."""
    lanes, echo = ServerLanes(), Echo()
    answered: list[int] = []

    async def write(data: bytes) -> None:
        if b'"other"' in data:
            answered.append(len(echo.order))

    async def lines(*messages: Json, after: int = 0) -> AsyncIterator[list[bytes]]:
        while len(echo.order) < after:
            await anyio.lowlevel.checkpoint()
        yield [json.dumps(message).encode() for message in messages]

    async def serve(lines: AsyncIterator[list[bytes]]) -> None:
        outgoing = OutboundQueue(write, 1 << 20)
        async with anyio.create_task_group() as writing:
            writing.start_soon(outgoing.write_queued)
            await Connection(lines, outgoing, echo, 10_000, lanes).serve()
            await outgoing.finish()

    flood = [{"id": n, "method": "echo", "params": {}} for n in range(5_000)]
    async with anyio.create_task_group() as group:
        group.start_soon(serve, lines({"id": "other", "method": "echo", "params": {}}, after=100))
        group.start_soon(serve, lines(*flood))
    (served,) = answered
    assert 100 <= served < 120


async def test_responses_of_the_client_resolve_its_requests() -> None:
    replies: dict[str, ClientReply] = {}

    async def what(t: Talk) -> None:
        async def request(method: str) -> None:
            replies[method] = await t.outgoing.request(method, b'{"a": 1}')

        async with anyio.create_task_group() as group:
            group.start_soon(request, "first")
            await anyio.wait_all_tasks_blocked()
            group.start_soon(request, "second")
            await anyio.wait_all_tasks_blocked()
            await t.send(
                {"id": 9, "result": "unknown"},
                {"id": 1, "result": {"a": 1}},
                {"id": 0, "error": {"code": -1, "message": "no"}},
            )

    talked = await talk(what)
    assert talked.answers == [
        {"id": 0, "method": "first", "params": {"a": 1}},
        {"id": 1, "method": "second", "params": {"a": 1}},
    ]
    assert replies == {"first": ClientReply(error="no"), "second": ClientReply(result={"a": 1})}
    assert len(talked.outgoing.pending) == 0


def test_an_error_has_a_code_and_a_kind_and_names_what_was_not_found() -> None:
    assert invalid_request("m").args == (-32600, "m", {"kind": "invalid_request"})
    assert invalid_request("m", "k").args == (-32600, "m", {"kind": "k"})
    assert invalid_request("m", "k", "f").args == (-32600, "m", {"kind": "k", "field": "f"})
    assert internal_error("m").args == (-32603, "m", {"kind": "internal"})
    assert internal_error("m", "k").args == (-32603, "m", {"kind": "k"})
    assert overloaded("m").args == (-32001, "m", {"kind": "overloaded", "retryable": True})
    assert not_found("file", "x").args == (-32600, "file not found: x", {"kind": "file_not_found"})


async def test_a_response_resolves_its_own_request_once_and_no_other() -> None:
    pending = PendingRequests()
    first, second, forgotten = (pending.register() for _ in range(3))
    pending.forget(forgotten)
    for id in ("0", 7, -1, forgotten.id):
        assert not pending.resolve(id, ClientReply())
    assert pending.resolve(second.id, ClientReply(2))
    assert not pending.resolve(second.id, ClientReply(3))
    assert (await second.wait()).result == 2
    assert len(pending) == 1
    assert pending.resolve(first.id, ClientReply(1))


def test_a_long_response_is_shortened_for_the_log() -> None:
    assert describe("x" * 198) == repr("x" * 198)
    assert describe("x" * 199) == "'" + "x" * 199 + "…"
