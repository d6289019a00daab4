"""Commands of a session: their effect on settings, their order, and the turns that they name."""

from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.engine.client_context import TurnCaller
from app_server.engine.context.environment_context import user_text
from app_server.engine.session.operation_queue import OperationQueue, PendingOperation
from app_server.engine.session.operations import perform
from app_server.engine.session.session_commands import (
    ALL_WISHES,
    ApiBehaviour,
    ChangeSettings,
    Command,
    Compact,
    Interrupt,
    Review,
    RunShell,
    StartTurn,
    TurnNotSteerable,
)
from app_server.engine.session.session_services import SessionState, TurnContext
from app_server.engine.session.tasks import SessionTask
from app_server.engine.session.turn_control import TurnControl
from app_server.engine.support.engine_errors import CoreError
from app_server.engine.telemetry.telemetry_events import NO_TELEMETRY
from app_server.engine.turn.emitter import TurnEmitter
from app_server.engine.turn.turn_items import TurnInput
from app_server_protocol.engine.events import SettingsChanged, TurnKind
from app_server_protocol.engine.item_values import ReviewRequest
from app_server_protocol.engine.thread_settings import SettingsPatch, ThreadSettings
from app_server_protocol.policy import (
    AskForApproval,
    DangerFullAccess,
    ReadOnly,
    ReasoningEffort,
    ReasoningSummary,
)
from tests.support.callers import some_caller

SETTINGS = ThreadSettings(
    cwd="/w",
    approval_policy=AskForApproval.NEVER,
    sandbox_policy=ReadOnly(),
    model="m",
    effort=ReasoningEffort.HIGH,
    summary=ReasoningSummary.DETAILED,
)


def active(turn_id: str, *, takes_input: bool) -> SessionTask:
    emitter = TurnEmitter(cast("Any", None), "0", turn_id, lambda: 0.0)
    turn = TurnContext(cast("Any", None), emitter, SETTINGS)
    task = SessionTask(turn)
    task.takes_input = takes_input
    return task


class OnlyAState:
    """Minimal session for a change of settings. It is busy, so messages wait."""

    def __init__(self) -> None:
        self.told: list[SettingsChanged] = []
        self.state = SessionState(SETTINGS, cast("Any", None))
        self.services = SimpleNamespace(
            state=self.state,
            commands=SimpleNamespace(roots=SimpleNamespace(learn=lambda policy, cwd: None)),
            conversation=SimpleNamespace(config=SimpleNamespace(provider=SimpleNamespace(id="p"))),
            outbox=SimpleNamespace(emit=lambda operation_id, event: self.told.append(event)),
            model=SimpleNamespace(facts=None),
        )
        self.tasks = SimpleNamespace(active=active("turn", takes_input=False), services=self.services)

    async def perform(self, id: str, command: Command) -> None:
        await perform(cast("Any", self), PendingOperation(id, command, "t"))


async def test_a_change_holds_at_once_and_is_told_where_it_changes_something() -> None:
    actor = OnlyAState()
    for change in (SettingsPatch(model="n"), SettingsPatch(), SettingsPatch(effort=None)):
        await actor.perform("1", ChangeSettings(change))
    assert (actor.state.settings.effort, actor.state.settings.model) == (None, "n")
    assert [(each.settings.model, each.settings.effort) for each in actor.told] == [
        ("n", ReasoningEffort.HIGH),
        ("n", None),
    ]


async def test_the_settings_of_a_turn_that_has_to_wait_hold_when_it_begins() -> None:
    actor = OnlyAState()
    before = actor.state.settings
    await actor.perform("1", StartTurn(turn_input=None, change=SettingsPatch(model="n")))
    assert actor.state.settings == before
    assert [pending.id for pending in actor.tasks.active.postponed] == ["1"]


CHANGES: dict[str, Any] = {
    "cwd": "/elsewhere",
    "approval_policy": AskForApproval.UNTRUSTED,
    "sandbox_policy": DangerFullAccess(),
    "model": "n",
    "effort": None,
    "summary": ReasoningSummary.NONE,
    "service_tier": "priority",
}


@given(st.sets(st.sampled_from(sorted(CHANGES))))
def test_a_change_of_settings_touches_what_it_names_and_nothing_else(names: set[str]) -> None:
    changed = SETTINGS.patched(SettingsPatch(**{name: CHANGES[name] for name in names}))
    expected = {name: CHANGES[name] if name in names else getattr(SETTINGS, name) for name in CHANGES}
    assert {name: getattr(changed, name) for name in CHANGES} == expected


def test_every_setting_can_be_changed() -> None:
    assert set(SettingsPatch.__struct_fields__) == set(ThreadSettings.__struct_fields__)


def queue() -> OperationQueue:
    ids = iter(f"turn-{n}" for n in range(100))
    return OperationQueue(ids.__next__)


@given(st.lists(st.integers(1, 50), unique=True), st.data())
def test_what_is_put_back_stands_where_it_was_submitted(positions: list[int], data: st.DataObject) -> None:
    """This holds whichever operations wait in the queue already, and in whatever order the others come back."""
    operations = queue()
    submissions = [PendingOperation(str(n), Interrupt(), "t", position=n) for n in positions]
    for submission in data.draw(st.permutations(submissions)):
        operations.put_back(submission)
    assert [each.position for each in operations] == sorted(positions)


def test_a_closed_queue_takes_nothing() -> None:
    operations = queue()
    operations.close()
    with pytest.raises(CoreError, match="the conversation has ended"):
        operations.submit(Interrupt())


WORDS = TurnInput(user_text("go"))
REVIEW = Review(ReviewRequest(prompt="look", user_facing_hint="look"))


class Scene:
    """Queue with a task that counts as running."""

    def __init__(self) -> None:
        self.queue = queue()
        services = SimpleNamespace(reports=SimpleNamespace(telemetry=NO_TELEMETRY))
        self.tasks = SimpleNamespace(active=None, services=services)
        self.turns = TurnControl(self.queue, cast("Any", self.tasks))

    def start(self, id: str, turn_input: TurnInput | None, wishes: ApiBehaviour = ALL_WISHES) -> str:
        """Begin a turn by an operation with this id, or join one; return the turn's id."""
        self.queue.new_id = iter((id,)).__next__
        command = StartTurn(turn_input=turn_input, wishes=wishes)
        return self.turns.start(command, TurnCaller(some_caller())).turn

    def runs(self, turn_id: str, *, takes_input: bool = True) -> SessionTask:
        self.tasks.active = running = active(turn_id, takes_input=takes_input)
        return running

    def waiting(self) -> list[Any]:
        return [pending.command for pending in self.queue]


@pytest.fixture
def scene() -> Scene:
    return Scene()


async def test_words_join_a_turn_that_has_not_begun(scene: Scene) -> None:
    assert scene.start("a", WORDS) == "turn-0"
    assert scene.turns.current_id == "turn-0"
    more = TurnInput(user_text("and this"))
    assert scene.start("b", more) == "turn-0"
    (first, _) = scene.queue
    assert first.steered == [more]


async def test_a_turn_without_words_joins_none(scene: Scene) -> None:
    scene.runs("running")
    assert scene.start("a", None) == "turn-0"


async def test_a_task_that_takes_no_words_lets_the_next_turn_wait(scene: Scene) -> None:
    active = scene.runs("running", takes_input=False)
    assert scene.start("a", WORDS) == "turn-0"
    assert active.take_input() == []


async def test_a_compaction_to_come_takes_no_words(scene: Scene) -> None:
    scene.runs("running")
    scene.queue.submit(Compact(), id="c")
    with pytest.raises(TurnNotSteerable) as refused:
        scene.turns.steer("running", WORDS)
    assert refused.value.turn is TurnKind.COMPACT


@pytest.mark.parametrize(("named", "ended"), [(None, "running"), ("", "running"), ("turn-0", "turn-0")])
async def test_an_interrupt_ends_the_turn_that_runs_or_the_named_one(
    scene: Scene, named: str | None, ended: str
) -> None:
    active = scene.runs("running", takes_input=False)
    scene.start("a", WORDS)
    active.postponed.append(await scene.queue.take())
    scene.queue.done()
    scene.queue.new_id = iter(("i",)).__next__
    scene.turns.interrupt(named)
    assert scene.waiting() == [Interrupt(ended)]


async def test_a_task_that_ends_is_no_turn_that_runs(scene: Scene) -> None:
    scene.runs("running").ending = True
    assert scene.turns.current_id is None
    assert scene.start("a", WORDS) == "turn-0"


async def test_what_ends_a_turn_leaves_words_a_turn_of_their_own(scene: Scene) -> None:
    scene.runs("running")
    scene.queue.submit(Interrupt(), id="i")
    assert scene.start("a", WORDS) == "turn-1"
    scene.queue.submit(Interrupt("turn-1"), id="j")
    assert scene.start("b", WORDS) == "turn-3"


UNNAMED = ApiBehaviour(names_turn=False)
"""Wishes of clients that do not know turns by their ids."""


async def test_words_of_no_named_turn_are_not_promised_to_the_one_that_runs(scene: Scene) -> None:
    active = scene.runs("running")
    assert scene.start("a", WORDS, UNNAMED) == "running"
    more = TurnInput(user_text("and this"))
    assert scene.start("b", more, UNNAMED) == "running"
    (late,) = active.drain_late()
    assert late.id == "a"
    assert late.command == StartTurn(turn_input=WORDS, wishes=UNNAMED), "they begin one of their own"
    assert late.steered == [more], "and what was said later joins it"
    assert not active.has_steered()
    for expected in ("turn-4", "turn-4"):
        assert scene.start("c", more, UNNAMED) == expected


async def test_words_that_are_promised_to_a_turn_overtake_none_that_were_said_before(scene: Scene) -> None:
    active = scene.runs("running")
    more = TurnInput(user_text("and this"))
    scene.start("a", WORDS, UNNAMED)
    scene.start("b", more)
    assert active.drain_late() == []
    assert active.take_input() == [WORDS, more]


@pytest.mark.parametrize(
    ("before", "joined"),
    [(Compact(), False), (RunShell("ls", confined=True), False), (Interrupt(), False), (REVIEW, True)],
    ids=["compaction", "command", "interrupt", "review"],
)
async def test_words_of_no_named_turn_wait_for_what_ends_the_one_that_runs(
    scene: Scene, before: Any, *, joined: bool
) -> None:
    scene.runs("running")
    scene.queue.submit(before, id="c")
    expected = "turn-0" if joined else "turn-1"
    assert scene.start("a", WORDS, UNNAMED) == expected


async def test_nothing_said_in_no_named_turn_leaves_the_one_that_runs_as_it_is(scene: Scene) -> None:
    active = scene.runs("running")
    assert scene.start("a", None, UNNAMED) == "running"
    assert (active.drain_late(), [type(each) for each in scene.waiting()]) == ([], [ChangeSettings])


async def test_what_comes_as_its_turn_ends_waits_for_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task group without tasks lets other tasks run once more when it ends, and waits for nothing that they start."""
    running, begun = active("turn", takes_input=True), []
    monkeypatch.setattr(TurnEmitter, "has_started", True)
    command = PendingOperation("1", Interrupt(), "t")

    async def work() -> None:
        begun.append("after the end")

    async def come_late() -> None:
        running.beside.add(work, command)

    async with anyio.create_task_group() as others:
        async with running.beside.running():
            others.start_soon(come_late)
        assert running.take_postponed() == [command]
    assert not begun
