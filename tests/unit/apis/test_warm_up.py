"""What is loaded ahead of the first turn is loaded when no long request needs the processor."""

from typing import Any, cast

import anyio
import pytest

from app_server.apis import warm_up
from app_server.apis.warm_up import WarmUp


class Models:
    """Stands for the models."""

    def __init__(self) -> None:
        self.loaded = anyio.Event()

    async def warm_up(self) -> None:
        self.loaded.set()


class Runner:
    """Stands for the runner of commands."""

    def warm_up(self) -> None:
        pass

    async def sandbox_state(self) -> None:
        pass


async def test_a_long_request_postpones_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm_up, "QUIET_SECONDS", 0)
    monkeypatch.setattr(warm_up, "COMMAND_EVENT_MODELS", ())
    models = Models()
    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            one = WarmUp(cast(Any, Runner()), cast(Any, models), group)
            with one.postponed():
                with one.postponed():
                    one.start()
                    await anyio.wait_all_tasks_blocked()
                await anyio.wait_all_tasks_blocked()
                assert not models.loaded.is_set()
            await models.loaded.wait()


async def test_conversations_that_are_opened_one_upon_another_postpone_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0
    monkeypatch.setattr(warm_up, "COMMAND_EVENT_MODELS", ())
    monkeypatch.setattr(anyio, "current_time", lambda: now)
    slept: list[float] = []
    models = Models()

    async def sleep(seconds: float) -> None:
        nonlocal now
        slept.append(seconds)
        now += seconds
        if len(slept) == 1:
            with one.opening():  # another one meanwhile
                now += 5

    monkeypatch.setattr(anyio, "sleep", sleep)
    async with anyio.create_task_group() as group:
        one = WarmUp(cast(Any, Runner()), cast(Any, models), group)
        one.start()
        await anyio.wait_all_tasks_blocked()
        with one.opening():
            await anyio.wait_all_tasks_blocked()
            assert not models.loaded.is_set()
        await models.loaded.wait()
    assert slept == pytest.approx([warm_up.BETWEEN_OPENINGS] * 2)
