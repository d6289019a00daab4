"""The queue of a stream: nothing is lost where it is read in time, and memory is bounded where it is not."""

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.client.event_queue import EventQueue
from app_server.client.events import DeltasDropped, RawNotification, ServerEvent
from app_server.client.failures import StreamOverflow
from protocol.v2.item_events import AgentMessageDeltaNotification, CommandExecutionOutputDeltaNotification


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


async def test_a_reader_in_time_gets_every_delta() -> None:
    queue = EventQueue()
    for word in ("a", "b"):
        queue.put(said(word))
        assert await queue.get() == said(word)


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


async def test_a_waiting_reader_is_woken_by_an_event_and_by_the_end() -> None:
    queue = EventQueue()
    got: list[ServerEvent | None] = []

    async def read() -> None:
        got.append(await queue.get())
        got.append(await queue.get())

    async with anyio.create_task_group() as group:
        group.start_soon(read)
        await anyio.wait_all_tasks_blocked()
        queue.put(said("a"))
        await anyio.wait_all_tasks_blocked()
        queue.close()
    assert got == [said("a"), None]


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
