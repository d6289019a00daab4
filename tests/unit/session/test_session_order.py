"""Operations that had to wait keep to the order in which they were submitted."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from app_server.core.session.session import Session
from app_server.core.session.tasks import PendingOperation
from protocol.ops import InterruptOp


@given(st.lists(st.integers(1, 50), unique=True), st.data())
def test_what_is_put_back_stands_where_it_was_submitted(positions: list[int], data: st.DataObject) -> None:
    """Whatever of it waits in the queue already, and in whatever order the rest comes back."""
    services = SimpleNamespace(terminals=SimpleNamespace())
    session = Session(cast(Any, services), cast(Any, None), lambda: None)
    submissions = [PendingOperation(str(n), InterruptOp(), "t", position=n) for n in positions]
    waiting = data.draw(st.integers(0, len(submissions)))
    queue = cast(Any, session)._queue
    queue.extend(sorted(submissions[:waiting], key=lambda each: each.position))
    for submission in submissions[waiting:]:
        session.put_back(submission)
    assert [each.position for each in queue] == sorted(positions)
