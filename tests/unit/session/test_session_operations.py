"""What operations do to the settings of the turns to come."""

from types import SimpleNamespace
from typing import Any, cast

from app_server.core.session.operations import perform
from app_server.core.session.services import SessionState
from app_server.core.session.tasks import ActiveTask, InputPolicy, NothingToDo, PendingOperation
from app_server.core.turn.emitter import TurnEmitter
from app_server.core.turn.settings import Settings
from protocol.engine.events import SettingsChanged
from protocol.ops import OverrideTurnContextOp, UserTurnOp
from protocol.policy import AskForApproval, ReadOnly, ReasoningEffort, ReasoningSummary


class OnlyAState:
    """As much of a session as a change of settings needs: busy, so that words wait."""

    def __init__(self) -> None:
        self.tasks = SimpleNamespace(
            active=ActiveTask(
                emitter=TurnEmitter(cast("Any", None), "0", "turn", lambda: 0.0),
                task=NothingToDo(),
                input_policy=InputPolicy.QUEUE,
            )
        )
        self.told: list[SettingsChanged] = []
        self.services = SimpleNamespace(
            commands=SimpleNamespace(roots=SimpleNamespace(learn=lambda policy, cwd: None)),
            conversation=SimpleNamespace(config=SimpleNamespace(provider=SimpleNamespace(id="p"))),
            outbox=SimpleNamespace(emit=lambda operation_id, event: self.told.append(event)),
        )
        self.state = SessionState(
            Settings(
                cwd="/w",
                approval_policy=AskForApproval.NEVER,
                sandbox_policy=ReadOnly(),
                model="m",
                effort=ReasoningEffort.HIGH,
                summary=ReasoningSummary.DETAILED,
            )
        )


async def overridden(raw: dict[str, Any]) -> Settings:
    actor = OnlyAState()
    await perform(cast("Any", actor), PendingOperation("1", OverrideTurnContextOp.model_validate(raw), "t"))
    return actor.state.settings


async def test_an_effort_of_null_is_the_models_default_and_none_at_all_changes_nothing() -> None:
    assert (await overridden({"model": "n"})).effort == ReasoningEffort.HIGH
    assert (await overridden({"effort": None})).effort is None
    assert (await overridden({"effort": "low"})).effort == ReasoningEffort.LOW


async def test_null_leaves_every_other_setting() -> None:
    before = OnlyAState().state.settings
    nulls = dict.fromkeys(("cwd", "approval_policy", "sandbox_policy", "model", "summary"))
    assert await overridden(nulls) == before


async def test_a_user_turn_always_says_which_effort_it_wants() -> None:
    actor = OnlyAState()
    turn = {
        "items": [],
        "cwd": "/x",
        "approval_policy": "never",
        "sandbox_policy": {"mode": "read-only"},
        "model": "n",
    }
    await perform(cast("Any", actor), PendingOperation("1", UserTurnOp.model_validate(turn), "t"))
    assert (actor.state.settings.effort, actor.state.settings.model) == (None, "n")
    op = UserTurnOp.model_validate({**turn, "effort": "low"})
    await perform(cast("Any", actor), PendingOperation("2", op, "t"))
    assert actor.state.settings.effort == ReasoningEffort.LOW
    assert [submission.id for submission in actor.tasks.active.postponed] == ["1", "2"]
    assert [(each.model, each.effort) for each in actor.told] == [("n", None), ("n", ReasoningEffort.LOW)]
