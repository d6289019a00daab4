"""How many requests count as running."""

import anyio

from app_server.rpc.connection import Lanes


async def test_jobs_count_until_they_end_also_those_that_wait_in_a_lane() -> None:
    go = [anyio.Event() for _ in range(3)]
    async with anyio.create_task_group() as group:
        lanes = Lanes(group)
        lanes.start(go[0].wait)
        lanes.start(go[1].wait, "lane")
        lanes.start(go[2].wait, "lane")
        for event, left in zip(go, (2, 1, 0), strict=True):
            await anyio.wait_all_tasks_blocked()
            assert lanes.running == left + 1
            event.set()
            await anyio.wait_all_tasks_blocked()
            assert lanes.running == left
