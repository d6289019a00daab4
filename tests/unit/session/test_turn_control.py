"""Turns by their ids: which one runs or is to come, which one words join, what an interrupt names."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from app_server.core.context.environment_context import user_text
from app_server.core.session.tasks import ActiveTask, InputPolicy, NothingToDo, OperationQueue
from app_server.core.session.turn_requests import (
    ChangeSettings,
    InterruptTurn,
    NoActiveTurn,
    OtherTurnActive,
    StartTurn,
    TurnNotSteerable,
)
from app_server.core.session.turns import TurnControl
from app_server.core.turn.emitter import TurnEmitter
from app_server.core.turn.items import UserWords
from protocol.engine.events import TurnKind
from protocol.ops import CompactOp

WORDS = UserWords(user_text("go"))


class Scene:
    """A queue, and a task that is said to run."""

    def __init__(self) -> None:
        ids = iter(f"turn-{n}" for n in range(100))
        self.queue = OperationQueue(ids.__next__)
        self.tasks = SimpleNamespace(active=None)
        self.turns = TurnControl(self.queue, cast("Any", self.tasks))

    def runs(self, turn_id: str, input_policy: InputPolicy = InputPolicy.STEER) -> ActiveTask:
        active = ActiveTask(
            emitter=TurnEmitter(cast("Any", None), "0", turn_id, lambda: 0.0),
            task=NothingToDo(),
            input_policy=input_policy,
        )
        self.tasks.active = active
        return active

    def waiting(self) -> list[Any]:
        return [pending.op for pending in self.queue]


@pytest.fixture
def scene() -> Scene:
    return Scene()


async def test_without_a_turn_there_is_nothing_to_steer_or_to_interrupt(scene: Scene) -> None:
    assert (scene.turns.current_id, scene.turns.any_to_come) == (None, False)
    with pytest.raises(NoActiveTurn, match="to steer"):
        scene.turns.steer("turn-0", WORDS)
    with pytest.raises(NoActiveTurn, match="to interrupt"):
        scene.turns.interrupt("i", None)


async def test_words_join_the_turn_that_runs(scene: Scene) -> None:
    active = scene.runs("running")
    assert scene.turns.start("a", StartTurn(words=WORDS)) == ("running", True)
    assert active.steered == [WORDS]
    assert [type(op) for op in scene.waiting()] == [ChangeSettings], "the settings still change"


async def test_words_join_a_turn_that_has_not_begun(scene: Scene) -> None:
    assert scene.turns.start("a", StartTurn(words=WORDS)) == ("turn-0", False)
    assert scene.turns.current_id == "turn-0"
    more = UserWords(user_text("and this"))
    assert scene.turns.start("b", StartTurn(words=more)) == ("turn-0", True)
    (first, _) = scene.queue
    assert first.steered == [more]


async def test_a_turn_without_words_joins_none(scene: Scene) -> None:
    scene.runs("running")
    assert scene.turns.start("a", StartTurn(words=None)) == ("turn-0", False)


async def test_a_task_that_takes_no_words_lets_the_next_turn_wait(scene: Scene) -> None:
    active = scene.runs("running", InputPolicy.QUEUE)
    assert scene.turns.start("a", StartTurn(words=WORDS)) == ("turn-0", False)
    assert active.steered == []


async def test_steering_names_the_turn_that_runs(scene: Scene) -> None:
    active = scene.runs("running")
    with pytest.raises(OtherTurnActive, match="`other` but found `running`"):
        scene.turns.steer("other", WORDS)
    assert scene.turns.steer("running", WORDS) == "running"
    assert active.steered == [WORDS]


async def test_a_compaction_to_come_takes_no_words(scene: Scene) -> None:
    scene.runs("running")
    scene.queue.submit("c", CompactOp())
    with pytest.raises(TurnNotSteerable) as refused:
        scene.turns.steer("running", WORDS)
    assert refused.value.kind is TurnKind.COMPACT


@pytest.mark.parametrize(("named", "ended"), [(None, "running"), ("", "running"), ("turn-0", "turn-0")])
async def test_an_interrupt_ends_the_turn_that_runs_or_the_named_one(
    scene: Scene, named: str | None, ended: str
) -> None:
    active = scene.runs("running", InputPolicy.QUEUE)
    scene.turns.start("a", StartTurn(words=WORDS))
    active.postponed.append(await scene.queue.take())
    scene.queue.done()
    scene.turns.interrupt("i", named)
    assert scene.waiting() == [InterruptTurn(ended)]


async def test_an_interrupt_of_an_unknown_turn_is_refused(scene: Scene) -> None:
    scene.runs("running")
    with pytest.raises(OtherTurnActive):
        scene.turns.interrupt("i", "turn-9")


async def test_a_task_that_ends_is_no_turn_that_runs(scene: Scene) -> None:
    scene.runs("running").ending = True
    assert scene.turns.current_id is None
    assert scene.turns.start("a", StartTurn(words=WORDS)) == ("turn-0", False)
