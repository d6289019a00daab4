"""The gate in front of the requests to a model: the requests that pass, and what the gate learns of them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel
import pytest

from app_server.engine.http.interface import Fault, HttpFailure
from app_server.engine.model.model_client import GatedRequest
from app_server.engine.support.engine_errors import ModelError
from app_server_protocol.encoding import Json
from app_server_protocol.engine.token_usage import TokenUsage
from app_server_protocol.values import replace
from tests.engine.model.scripted import (
    CREATED,
    SETTINGS,
    ScriptedAnswer,
    ScriptedHttp,
    answer,
    ask,
    client_for,
    event,
    refused,
    text_delta,
)

pytestmark = pytest.mark.anyio

COUNTS = {"input_tokens": 7, "output_tokens": 2, "total_tokens": 9}
FINE = answer(CREATED, event("response.completed", response={"id": "r1", "usage": COUNTS}))
LIMIT_IN_THE_STREAM: Json = {"code": "rate_limit_exceeded", "message": "Please try again in 2s."}


class Gate:
    """Gate that lets every request pass, and records it."""

    longest_pause = 1000.0

    def __init__(self) -> None:
        self.passed: list[GatedRequest] = []
        self.under_way = 0

    @asynccontextmanager
    async def passing(self, request: GatedRequest) -> AsyncIterator[None]:
        self.under_way += 1
        try:
            yield
        finally:
            self.under_way -= 1
            self.passed.append(replace(request))


async def no_time(seconds: float) -> None:
    await anyio.lowlevel.checkpoint()


async def asked(*outcomes: ScriptedAnswer | HttpFailure, request_max_retries: int = 0) -> Gate:
    """Return the gate after a request that may have failed."""
    gate, retries = Gate(), request_max_retries
    client = client_for(ScriptedHttp(*outcomes), gate=gate, sleep=no_time, request_max_retries=retries)
    try:
        await ask(client)
    except ModelError:
        pass
    assert gate.under_way == 0
    return gate


async def test_the_gate_learns_who_asked_and_what_it_cost() -> None:
    [passed] = (await asked(FINE)).passed
    assert (passed.conversation_id, passed.model) == (SETTINGS.conversation_id, SETTINGS.model)
    assert passed.size > 0
    assert passed.usage == TokenUsage(input_tokens=7, output_tokens=2, total_tokens=9)
    assert (passed.status, passed.limited) == (None, False)


async def test_a_limit_of_requests_is_waited_for_and_is_no_retry() -> None:
    gate = await asked(*[refused(429, retry_after="3")] * 5, FINE)
    assert [each.limited for each in gate.passed] == [*[True] * 5, False]
    assert {each.retry_after for each in gate.passed[:5]} == {3.0}


async def test_a_long_wait_that_a_turn_would_not_take_is_left_to_the_gate() -> None:
    gate = await asked(refused(429, retry_after="900"), FINE)
    limited, passed = gate.passed
    assert (limited.limited, limited.retry_after) == (True, 900.0)
    assert passed.usage is not None


@pytest.mark.parametrize(
    "used_up",
    [
        refused(429, {"error": {"type": "usage_limit_reached", "plan_type": "plus"}}),
        refused(429, {"error": {"code": "insufficient_quota"}}),
    ],
)
async def test_a_quota_that_is_used_up_is_no_limit_of_requests(used_up: ScriptedAnswer) -> None:
    [passed] = (await asked(used_up, FINE)).passed
    assert not passed.limited


async def test_other_refusals_are_retried_as_ever_and_each_passes_the_gate() -> None:
    gate = await asked(refused(500), HttpFailure(Fault.UNREACHABLE, "refused"), FINE, request_max_retries=2)
    assert [each.status for each in gate.passed] == [500, None, None]
    assert not any(each.limited for each in gate.passed)


async def test_a_wait_that_is_longer_than_the_gate_waits_fails_the_request() -> None:
    gate = await asked(refused(429, **{"retry-after": "99999999999"}))
    [passed] = gate.passed
    assert (passed.status, passed.limited) == (429, False)


async def test_a_limit_that_the_stream_tells_is_told_to_the_gate() -> None:
    failed = answer(CREATED, event("response.failed", response={"error": LIMIT_IN_THE_STREAM}))
    [passed] = (await asked(failed)).passed
    assert (passed.limited, passed.retry_after) == (True, 2.0)


async def test_a_request_that_waits_at_the_gate_is_not_sent_once_it_is_cancelled() -> None:
    class Shut(Gate):
        @asynccontextmanager
        async def passing(self, request: GatedRequest) -> AsyncIterator[None]:
            await anyio.sleep_forever()
            yield

    http = ScriptedHttp(FINE)
    async with anyio.create_task_group() as group:
        group.start_soon(ask, client_for(http, gate=Shut()))
        await anyio.wait_all_tasks_blocked()
        group.cancel_scope.cancel()
    assert http.requests == []


async def test_leaving_early_leaves_the_gate() -> None:
    gate = Gate()
    endless = answer(CREATED, text_delta("a"), anyio.Event())
    async with anyio.create_task_group() as group:
        group.start_soon(ask, client_for(ScriptedHttp(endless), gate=gate))
        await anyio.wait_all_tasks_blocked()
        assert gate.under_way == 1
        group.cancel_scope.cancel()
    assert gate.under_way == 0
    [passed] = gate.passed
    assert passed.usage is None
