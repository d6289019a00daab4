"""Operations are taken in the order in which they were submitted; those that had to wait keep to it."""

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.core.errors import CoreError
from app_server.core.session.tasks import OperationQueue, PendingOperation
from protocol.ops import InterruptOp, ShutdownOp


def queue() -> OperationQueue:
    ids = iter(f"turn-{n}" for n in range(100))
    return OperationQueue(ids.__next__)


@given(st.lists(st.integers(1, 50), unique=True), st.data())
def test_what_is_put_back_stands_where_it_was_submitted(positions: list[int], data: st.DataObject) -> None:
    """Whatever of it waits in the queue already, and in whatever order the rest comes back."""
    operations = queue()
    submissions = [PendingOperation(str(n), InterruptOp(), "t", position=n) for n in positions]
    for submission in data.draw(st.permutations(submissions)):
        operations.put_back(submission)
    assert [each.position for each in operations] == sorted(positions)


async def test_operations_are_taken_in_their_order_and_one_is_being_performed() -> None:
    operations = queue()
    assert [operations.submit(id, InterruptOp()) for id in ("a", "b")] == ["turn-0", "turn-1"]
    first = await operations.take()
    assert (first.id, operations.performing, len(operations)) == ("a", first, 1)
    operations.done()
    assert operations.performing is None
    operations.put_back(first)
    assert [(await operations.take()).id for _ in range(2)] == ["a", "b"]


async def test_taking_waits_for_the_first_operation() -> None:
    operations, taken = queue(), list[str]()

    async def take() -> None:
        taken.append((await operations.take()).id)

    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            group.start_soon(take)
            await anyio.wait_all_tasks_blocked()
            assert taken == []
            operations.submit("a", ShutdownOp())
    assert taken == ["a"]


def test_a_closed_queue_takes_nothing() -> None:
    operations = queue()
    operations.close()
    with pytest.raises(CoreError, match="the conversation has ended"):
        operations.submit("a", InterruptOp())
