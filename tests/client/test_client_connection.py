"""The library against a peer that misbehaves, and the queue of a stream."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.client import (
    ApprovalHandler,
    ApprovalRequest,
    AppServer,
    RawNotification,
    ServerEnded,
    ThreadClosed,
    ThreadHandle,
    UnexpectedAnswer,
    UserQuestionsRequest,
)
from app_server.client.event_stream import EventQueue
from app_server.client.events import DeltasDropped, ServerEvent
from app_server.client.failures import StreamOverflow
from app_server_protocol.encoding import Json
from app_server_protocol.v2.items import (
    AgentMessageDeltaNotification,
    CommandExecutionOutputDeltaNotification,
)
from app_server_protocol.v2.server import WarningNotification
from app_server_protocol.v2.turn import TURN_START, TurnStartParams, TurnStatus
from tests.client.peer import ScriptedPeer, opened, turn

COMMAND = "item/commandExecution/requestApproval"
ASKED: Json = {"threadId": "t1", "turnId": "u1", "itemId": "c1", "startedAtMs": 1, "command": "ls"}


@pytest.fixture
def peer() -> ScriptedPeer:
    return ScriptedPeer()


@asynccontextmanager
async def with_thread(
    peer: ScriptedPeer, on_approval: ApprovalHandler | None = None
) -> AsyncIterator[tuple[AppServer, ThreadHandle]]:
    with anyio.fail_after(30):
        async with AppServer.connect(peer, on_approval=on_approval) as server:
            yield server, await server.start_thread()


async def test_an_error_in_the_callers_block_comes_out_as_it_is() -> None:
    with pytest.raises(ZeroDivisionError):
        async with AppServer.connect(ScriptedPeer()):
            raise ZeroDivisionError


async def test_only_what_was_given_is_sent(peer: ScriptedPeer) -> None:
    async with AppServer.connect(peer) as server:
        await server.start_thread(model="m", sandbox="read-only")
    assert (await peer.request("thread/start"))["params"] == {"model": "m", "sandbox": "read-only"}


async def test_unknown_notifications_and_unknown_shapes_pass_through(peer: ScriptedPeer) -> None:
    async with with_thread(peer) as (server, thread), thread.events() as of_thread, server.events() as of_all:
        await peer.notify("thread/sparkled", threadId="t1", how="brightly")
        await peer.notify("turn/started", threadId="t1", turn={"id": 5})
        await peer.notify("weather/changed", sun=True)
        await peer.notify("warning", message="careful")
        sparkled = RawNotification("thread/sparkled", {"threadId": "t1", "how": "brightly"})
        malformed = RawNotification("turn/started", {"threadId": "t1", "turn": {"id": 5}})
        weather = RawNotification("weather/changed", {"sun": True})
        assert [await anext(of_thread), await anext(of_thread)] == [sparkled, malformed]
        seen = [await anext(of_all) for _ in range(4)]
        assert seen == [sparkled, malformed, weather, WarningNotification(message="careful")]


async def test_lines_that_are_no_messages_are_skipped(peer: ScriptedPeer) -> None:
    async with with_thread(peer) as (server, _):
        await peer.send_bytes(b'Welcome!\n\n[1]\n{"id":99,"result":{}}\n{"jsonrpc":"2.0"}\n\xff\n')
        assert (await server.start_thread()).id == "t1"


async def test_an_answer_of_another_shape_is_an_error_of_its_request_only(peer: ScriptedPeer) -> None:
    peer.answers["model/list"] = lambda _: {"data": 5}
    async with with_thread(peer) as (server, _):
        with pytest.raises(UnexpectedAnswer, match="model/list"):
            await server.models()
        await server.start_thread()


@pytest.mark.parametrize(
    ("method", "params", "result"),
    [
        (COMMAND, ASKED, {"decision": "decline"}),
        ("item/fileChange/requestApproval", ASKED, {"decision": "decline"}),
        (
            "item/permissions/requestApproval",
            {**ASKED, "cwd": "/w", "permissions": {}},
            {"permissions": {}, "scope": "turn", "strictAutoReview": None},
        ),
        ("item/tool/requestUserInput", {**ASKED, "questions": [], "isBlocking": True}, {"answers": {}}),
        (
            "mcpServer/elicitation/request",
            {"threadId": "t1", "serverName": "s", "mode": "form", "message": "?", "requestedSchema": {}},
            {"action": "decline", "content": None, "_meta": None},
        ),
    ],
)
async def test_what_nobody_handles_is_declined(
    peer: ScriptedPeer, method: str, params: Json, result: Json
) -> None:
    async with with_thread(peer):
        await peer.send({"id": "q", "method": method, "params": params})
        assert (await peer.answer_to("q"))["result"] == result


@pytest.mark.parametrize(("method", "code"), [("item/unheardOf/ask", -32601), (COMMAND, -32602)])
async def test_what_nobody_understands_is_refused(peer: ScriptedPeer, method: str, code: int) -> None:
    async with with_thread(peer):
        await peer.send({"id": 7, "method": method, "params": {"threadId": "t1"}})
        assert (await peer.answer_to(7))["error"]["code"] == code


async def test_an_answer_that_fits_no_question_declines_and_is_told(peer: ScriptedPeer) -> None:
    async with with_thread(peer, lambda _: True):
        params = {**ASKED, "questions": [], "isBlocking": True}
        await peer.send({"id": 1, "method": "item/tool/requestUserInput", "params": params})
        assert (await peer.answer_to(1))["result"] == {"answers": {}}


async def test_answers_to_questions_are_texts_by_id(peer: ScriptedPeer) -> None:
    def decide(request: ApprovalRequest) -> object:
        assert isinstance(request, UserQuestionsRequest)
        return request.answer({"colour": "Red", "sizes": ["S", "L"]})

    async with with_thread(peer, decide):  # type: ignore[arg-type]
        params = {**ASKED, "questions": [], "isBlocking": True}
        await peer.send({"id": 1, "method": "item/tool/requestUserInput", "params": params})
        answers = {"colour": {"answers": ["Red"]}, "sizes": {"answers": ["S", "L"]}}
        assert (await peer.answer_to(1))["result"] == {"answers": answers}


async def test_a_withdrawn_request_cancels_its_handler_and_needs_no_answer(peer: ScriptedPeer) -> None:
    cancelled = anyio.Event()
    begun = anyio.Event()

    async def decide(_: ApprovalRequest) -> bool:
        begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.set()
        return True

    async with with_thread(peer, decide) as (server, _):
        await peer.send({"id": 3, "method": COMMAND, "params": ASKED})
        await begun.wait()
        await peer.notify("serverRequest/resolved", threadId="t1", requestId=3)
        await cancelled.wait()
        await server.start_thread()
    assert not [message for message in peer.received if message.get("id") == 3 and "method" not in message]


async def test_a_waiting_handler_and_an_unread_stream_delay_no_other_thread(peer: ScriptedPeer) -> None:
    async def decide(request: ApprovalRequest) -> bool:
        if request.thread_id == "t1":
            await anyio.sleep_forever()
        return True

    ids = iter(("t1", "t2"))
    peer.answers["thread/start"] = lambda _: opened(next(ids))
    async with AppServer.connect(peer, on_approval=decide) as server:
        first, _ = await server.start_thread(), await server.start_thread()
        async with first.stream("hi") as stream:
            for number in range(6000):  # more than the queue of a stream holds, without a reader
                await peer.notify("item/x", threadId="t1", turnId="u1", n=number)
            await peer.send({"id": 1, "method": COMMAND, "params": ASKED})
            await peer.send({"id": 2, "method": COMMAND, "params": {**ASKED, "threadId": "t2"}})
            assert (await peer.answer_to(2))["result"] == {"decision": "accept"}
            await peer.notify("turn/completed", threadId="t1", turn=turn(status="completed"))
            assert (await stream.result()).status is TurnStatus.COMPLETED


async def test_the_end_of_the_server_ends_everything_that_waits_with_its_cause(peer: ScriptedPeer) -> None:
    peer.cause = "the server ended with exit status 3\ndisk full"
    raised: list[str] = []

    async def expect_end(wait: Callable[[], Awaitable[object]]) -> None:
        try:
            await wait()
        except ServerEnded as ended:
            raised.append(str(ended))

    async with with_thread(peer) as (server, thread):
        running, events = await thread.start_turn("hi"), thread.events()
        async with thread.stream("hi") as stream, anyio.create_task_group() as group:
            waiting = (running.result, partial(anext, stream), partial(anext, events), server.models)
            for wait in waiting:
                group.start_soon(expect_end, wait)
            await peer.request("model/list")
            peer.leave()
        with pytest.raises(ServerEnded, match="disk full"):
            await server.models()
    assert raised == [peer.cause] * len(waiting)


async def test_a_turn_whose_caller_left_before_the_answer_is_interrupted(peer: ScriptedPeer) -> None:
    del peer.answers["turn/start"]
    async with with_thread(peer) as (_, thread):
        async with anyio.create_task_group() as group:
            group.start_soon(thread.run, "hi")
            asked = await peer.request("turn/start")
            group.cancel_scope.cancel()
        await peer.send({"id": asked["id"], "result": {"turn": turn("u9")}})
        interrupt = await peer.request("turn/interrupt")
        assert interrupt["params"] == {"threadId": "t1", "turnId": "u9"}


async def test_an_answer_that_comes_together_with_the_cancellation_is_late(peer: ScriptedPeer) -> None:
    late: list[str] = []
    async with AppServer.connect(peer) as server, anyio.create_task_group() as group:

        async def ask() -> None:
            await server._connection.request(
                TURN_START,
                TurnStartParams(thread_id="t1", input=()),
                received=lambda _: group.cancel_scope.cancel(),
                late=lambda response: late.append(response.turn.id),
            )

        group.start_soon(ask)
    assert late == ["u1"]


async def test_a_turn_that_ended_before_it_was_asked_for_has_its_end(peer: ScriptedPeer) -> None:
    async with with_thread(peer) as (_, thread):
        for number in range(20):
            ended = turn(f"u{number}", "completed" if number % 2 else "interrupted")
            await peer.notify("turn/completed", threadId="t1", turn=ended)
        async with thread.events() as events:
            await peer.notify("warning", threadId="t1", message="now")
            await anext(events)
        assert (await thread.turn("u19").result()).status is TurnStatus.COMPLETED
        assert (await thread.turn("u18").result()).status is TurnStatus.INTERRUPTED


async def test_a_server_that_never_answers_is_given_up(
    peer: ScriptedPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app_server.client.request_client.STARTS_WITHIN", 0.05)
    del peer.answers["initialize"]
    with pytest.raises(ServerEnded, match="did not answer"):
        async with AppServer.connect(peer):
            raise AssertionError("it is not connected")


async def test_a_closed_thread_ends_who_waits_for_it(peer: ScriptedPeer) -> None:
    async with with_thread(peer) as (_, thread):
        running = await thread.start_turn("hi")
        await peer.notify("thread/closed", threadId="t1")
        with pytest.raises(ThreadClosed):
            await running.result()


async def test_what_the_server_says_right_behind_an_answer_is_not_missed() -> None:
    peer = ScriptedPeer(buffered=64)
    del peer.answers["turn/start"]
    async with with_thread(peer) as (_, thread), anyio.create_task_group() as group:

        async def answer() -> None:
            asked = await peer.request("turn/start")
            await peer.send(
                {"id": asked["id"], "result": {"turn": turn()}},
                {"method": "turn/started", "params": {"threadId": "t1", "turn": turn()}},
                {"method": "turn/completed", "params": {"threadId": "t1", "turn": turn(status="completed")}},
            )

        group.start_soon(answer)
        assert (await thread.run("hi")).completed


def said(text: str, item: str = "i1") -> AgentMessageDeltaNotification:
    return AgentMessageDeltaNotification(thread_id="t", turn_id="u", item_id=item, delta=text)


def printed(text: str, item: str = "c1") -> CommandExecutionOutputDeltaNotification:
    return CommandExecutionOutputDeltaNotification(thread_id="t", turn_id="u", item_id=item, delta=text)


async def everything(queue: EventQueue) -> list[ServerEvent]:
    queue.close()
    found = []
    while (event := await queue.get()) is not None:
        found.append(event)
    return found


async def test_neighbouring_deltas_of_one_text_become_one() -> None:
    queue = EventQueue()
    for delta in (said("a"), said("b"), printed("x"), printed("y"), said("c"), said("d", "i2")):
        queue.put(delta)
    assert await everything(queue) == [said("ab"), printed("xy"), said("c"), said("d", "i2")]


async def test_deltas_over_the_limit_are_counted_where_they_are_missing() -> None:
    queue = EventQueue(text=4)
    end = RawNotification("end", None)
    for event in (said("abc"), said("de"), said("f"), said("g"), end):
        queue.put(event)
    assert await everything(queue) == [said("abc"), DeltasDropped(1), said("f"), DeltasDropped(1), end]


async def test_deltas_that_are_missing_at_the_end_are_counted_too() -> None:
    queue = EventQueue(text=1)
    queue.put(said("a"))
    queue.put(said("b"))
    assert await everything(queue) == [said("a"), DeltasDropped(1)]


async def test_a_queue_that_is_full_ends_with_an_error() -> None:
    queue = EventQueue(events=2)
    events = [RawNotification(f"n{n}", None) for n in range(4)]
    for event in events:
        queue.put(event)
    assert [await queue.get(), await queue.get()] == events[:2]
    with pytest.raises(StreamOverflow):
        await queue.get()
    assert await queue.get() is None


async def test_room_comes_back_when_deltas_are_read() -> None:
    queue = EventQueue(text=3)
    for _ in range(5):
        queue.put(said("ab"))
        queue.put(said("c"))
        assert await queue.get() == said("abc")


async def test_whoever_waits_for_the_reader_goes_on_once_it_has_handled_everything() -> None:
    queue = EventQueue()
    order: list[str] = []

    async def read() -> None:
        while (event := await queue.get()) is not None:
            await anyio.lowlevel.checkpoint()
            order.append(f"handled {getattr(event, 'method', '')}")

    async def ask(what: str) -> None:
        await queue.read_up()
        order.append(what)

    queue.put(RawNotification("1", None))
    queue.put(RawNotification("2", None))
    async with anyio.create_task_group() as group:
        group.start_soon(ask, "asked")
        group.start_soon(ask, "asked")
        await anyio.wait_all_tasks_blocked()
        group.start_soon(read)
        await anyio.wait_all_tasks_blocked()
        await ask("asked at once")
        queue.close()
    await queue.read_up()
    assert order == ["handled 1", "handled 2", "asked", "asked", "asked at once"]


DELTA = st.tuples(st.sampled_from(["i1", "i2"]), st.text(max_size=3))


@given(st.lists(DELTA | st.just(None), max_size=60), st.integers(1, 12), st.integers(1, 30))
def test_memory_is_bounded_and_what_is_left_is_in_order(
    given_events: list[tuple[str, str] | None], events: int, text: int
) -> None:
    queue = EventQueue(events=events, text=text)
    for number, each in enumerate(given_events):
        queue.put(RawNotification(str(number), None) if each is None else said(each[1], each[0]))
        waiting = [event for event in queue.waiting() if not isinstance(event, DeltasDropped)]
        assert len(waiting) <= events
        assert sum(len(getattr(event, "delta", "")) for event in waiting) <= text
    numbers = [int(event.method) for event in queue.waiting() if isinstance(event, RawNotification)]
    assert numbers == [n for n, each in enumerate(given_events) if each is None][: len(numbers)]
