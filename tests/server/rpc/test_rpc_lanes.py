"""The order of requests: in one conversation, over several connections, and the requests that a slow client may
delay.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio
from anyio.abc import TaskGroup

from app_server.server.rpc.lanes import Job, LaneName, ServerLanes

THREAD = LaneName("thread", for_all=True)
FILE = LaneName("/file", for_all=False)


class Order:
    """Jobs of two connections, which begin, answer and end when the test lets them."""

    def __init__(self, group: TaskGroup) -> None:
        server = ServerLanes()
        self.server = server
        self.one, self.other = server.connect(group), server.connect(group)
        self.said: list[str] = []
        self._answers: dict[str, anyio.Event] = {}
        self._ends: dict[str, anyio.Event] = {}

    def job(self, name: str, *, goes_on: bool = False) -> Job:
        """Return a job that answers when the test lets it. With `goes_on` its end also waits for the test."""
        self._answers[name], self._ends[name] = anyio.Event(), anyio.Event()

        async def run(answered: Callable[[], None]) -> None:
            self.said.append(f"{name} begins")
            await self._answers[name].wait()
            if goes_on:
                answered()
                await self._ends[name].wait()
            self.said.append(f"{name} ends")

        return run

    async def answer(self, name: str) -> None:
        self._answers[name].set()
        await anyio.wait_all_tasks_blocked()

    async def end(self, name: str) -> None:
        self._ends[name].set()
        await anyio.wait_all_tasks_blocked()

    async def news(self) -> list[str]:
        await anyio.wait_all_tasks_blocked()
        said, self.said = self.said, []
        return said


@asynccontextmanager
async def order() -> AsyncIterator[Order]:
    async with anyio.create_task_group() as group:
        here = Order(group)
        yield here
        group.cancel_scope.cancel()


async def test_jobs_count_until_they_end_also_those_that_wait_in_a_lane() -> None:
    async with order() as o:
        o.one.start(o.job("a"))
        o.one.start(o.job("b"), THREAD)
        o.one.start(o.job("c"), THREAD)
        for name, left in (("a", 2), ("b", 1), ("c", 0)):
            await anyio.wait_all_tasks_blocked()
            assert o.one.running == left + 1
            await o.answer(name)
            assert o.one.running == left


async def test_requests_of_one_conversation_keep_their_order_over_all_connections() -> None:
    async with order() as o:
        o.one.start(o.job("1"), THREAD)
        o.other.start(o.job("2"), THREAD)
        o.one.start(o.job("3"), THREAD)
        assert await o.news() == ["1 begins"]
        await o.answer("2")
        await o.answer("1")
        assert await o.news() == ["1 ends", "2 begins", "2 ends", "3 begins"]


async def test_lanes_of_what_is_no_conversation_are_a_connections_own() -> None:
    async with order() as o:
        o.one.start(o.job("1"), FILE)
        o.other.start(o.job("2"), FILE)
        o.one.start(o.job("3"), FILE)
        assert await o.news() == ["1 begins", "2 begins"]


async def test_what_follows_an_answer_keeps_nobody_else_waiting() -> None:
    async with order() as o:
        o.one.start(o.job("1", goes_on=True), THREAD)
        o.one.start(o.job("2"), THREAD)
        o.other.start(o.job("3"), THREAD)
        await o.answer("1")
        assert await o.news() == ["1 begins", "3 begins"]
        await o.answer("3")
        assert await o.news() == ["3 ends"]  # the second one waits for the first of the same client
        await o.end("1")
        assert await o.news() == ["1 ends", "2 begins"]


async def test_who_leaves_lets_others_go_on() -> None:
    async with order() as o, anyio.create_task_group() as leaving:
        third = o.server.connect(leaving)
        third.start(o.job("1"), THREAD)
        third.start(o.job("2"), THREAD)
        o.one.start(o.job("3"), THREAD)
        assert await o.news() == ["1 begins"]
        o.server.disconnect(third)
        leaving.cancel_scope.cancel()
        assert await o.news() == []
    assert o.said == ["3 begins"]


async def test_no_lane_is_left_when_its_last_job_has_ended() -> None:
    async with order() as o:
        for number, lanes in enumerate([o.one, o.other] * 2):
            lanes.start(o.job(str(number), goes_on=number == 3), THREAD)
        for number in range(4):
            await o.answer(str(number))
        await o.end("3")
        assert o.server._lanes == {}
