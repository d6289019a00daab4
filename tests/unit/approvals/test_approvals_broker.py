"""Questions that wait for an answer: which answer finds which question, and that only the first one counts."""

import anyio
import pytest

from app_server.core.approvals.broker import ApprovalAnswer, ApprovalBroker
from protocol.engine.questions import AllowFiles, KeepRule
from protocol.policy import ReviewDecision

YES, SESSION, NO = ReviewDecision.APPROVED, ReviewDecision.APPROVED_FOR_SESSION, ReviewDecision.DENIED


def silent() -> None:
    pass


@pytest.mark.parametrize(("first", "second"), [(NO, YES), (NO, SESSION), (YES, NO)])
async def test_the_first_answer_counts_also_where_the_second_comes_before_it_is_taken(
    first: ReviewDecision, second: ReviewDecision
) -> None:
    broker = ApprovalBroker()

    def announce() -> None:
        assert broker.resolve("c1", first)
        assert not broker.resolve("c1", second)

    assert (await broker.request_decision("c1", "t1", announce)).decision is first


async def test_an_answer_finds_only_the_question_with_its_id() -> None:
    broker = ApprovalBroker()
    decisions: dict[str, ReviewDecision] = {}

    async def ask(call_id: str) -> None:
        decisions[call_id] = (await broker.request_decision(call_id, "t1", silent)).decision

    async with anyio.create_task_group() as group:
        group.start_soon(ask, "c1")
        group.start_soon(ask, "c2")
        await anyio.wait_all_tasks_blocked()
        assert not broker.resolve("c3", YES)
        assert not broker.resolve("t1", YES), "two questions of the turn: which one is meant?"
        assert broker.resolve("c2", NO)
        assert broker.resolve("c1", YES)
    assert decisions == {"c1": YES, "c2": NO}
    assert len(broker) == 0


async def test_the_id_of_a_turn_answers_its_only_question() -> None:
    broker = ApprovalBroker()
    answer = await broker.request_decision("c1", "t1", lambda: _answered(broker, "t1"))
    assert answer == ApprovalAnswer(YES)


def _answered(broker: ApprovalBroker, id: str) -> None:
    assert broker.is_open(id)
    assert broker.resolve(id, YES)


async def test_a_second_question_under_the_same_id_is_denied_and_the_first_goes_on() -> None:
    broker = ApprovalBroker()
    decisions: list[ReviewDecision] = []

    async def ask() -> None:
        decisions.append((await broker.request_decision("c1", "t1", silent)).decision)

    async with anyio.create_task_group() as group:
        group.start_soon(ask)
        await anyio.wait_all_tasks_blocked()
        assert (await broker.request_decision("c1", "t1", silent)).decision is NO
        assert broker.resolve("c1", YES)
    assert decisions == [YES]


async def test_a_withdrawn_question_leaves_nothing_to_answer() -> None:
    broker = ApprovalBroker()
    with anyio.move_on_after(0):
        await broker.request_decision("c1", "t1", silent)
    assert not broker.is_open("c1")
    assert not broker.resolve("c1", YES)
    assert (await broker.request_decision("c1", "t2", lambda: _answered(broker, "c1"))).decision is YES


@pytest.mark.parametrize("also", [None, KeepRule(("touch",)), AllowFiles()])
async def test_an_answer_says_what_is_allowed_beside_the_request(also: KeepRule | AllowFiles | None) -> None:
    broker = ApprovalBroker()

    def announce() -> None:
        assert broker.resolve("c1", YES, also=also)

    assert await broker.request_decision("c1", "t1", announce) == ApprovalAnswer(YES, also)
