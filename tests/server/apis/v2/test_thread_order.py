"""No sequence of events breaks the order of the thread API, and its adapter handles every sequence."""

from typing import get_args

from hypothesis import given, settings
from hypothesis import strategies as st

from app_server.engine.turn.emitter import StartedItem
from app_server.server.apis.v2.v2_adapter import running_turn
from app_server_protocol.engine.errors import TurnError
from app_server_protocol.engine.events import (
    AttemptFailed,
    CommandOutput,
    CommandRunning,
    EngineEvent,
    Goal,
    GoalCleared,
    GoalUpdated,
    ItemCompleted,
    ItemStarted,
    McpServersSettled,
    McpServerState,
    McpServerStateChanged,
    ModelRerouted,
    PatchWriting,
    ReasoningSummaryPart,
    SessionEvent,
    SettingsChanged,
    TerminalInput,
    TurnAbortReason,
    TurnEnded,
    TurnKind,
    TurnStarted,
    TurnStatus,
)
from app_server_protocol.engine.hook_events import (
    HookEntryKind,
    HookEvent,
    HookHandlerType,
    HookRunStatus,
    HookSource,
)
from app_server_protocol.engine.hook_runs import HookCompleted, HookRun, HookRunEntry, HookStarted
from app_server_protocol.engine.item_values import ExecOutputStream, PlanItemArg, StepStatus
from app_server_protocol.engine.items import (
    AgentMessage,
    CommandSource,
    Item,
    ItemStatus,
    Plan,
    Reasoning,
)
from app_server_protocol.engine.notices import (
    CustomPromptsListed,
    DeprecationNotice,
    ErrorNotice,
    HistoryEntryFound,
    HistoryItemRecorded,
    McpToolsListed,
    PlanUpdated,
    ProgressNotice,
    SessionClosed,
    TokenUsageUpdated,
    TurnDiffUpdated,
    UndoCompleted,
    UndoStarted,
    WarningNotice,
)
from app_server_protocol.engine.questions import (
    Choice,
    CommandApprovalQuestion,
    ElicitationQuestion,
    McpCallDecision,
    McpCallQuestion,
    PatchApprovalQuestion,
    Question,
    ToolCallQuestion,
    UserInputQuestion,
    UserQuestion,
)
from app_server_protocol.engine.thread_settings import ThreadSettings
from app_server_protocol.engine.token_usage import RateLimitSnapshot, RateLimitWindow
from app_server_protocol.policy import AskForApproval, ReadOnly, ReasoningSummary
from tests.server.apis.v2.recorded import (
    LIMITS,
    NOW,
    OTHER_TURN,
    RAW,
    TURN,
    USAGE,
    Recording,
    check_laws,
    command,
    patch,
)
from tests.support.sample_values import with_samples
from tests.support.written_texts import grown


def hook_run(status: str) -> HookRun:
    return HookRun(
        id="stop:0:/h",
        event=HookEvent.STOP,
        handler_type=HookHandlerType.COMMAND,
        source=HookSource.USER,
        source_path="/h",
        display_order=0,
        status=HookRunStatus(status),
        entries=(HookRunEntry(HookEntryKind.ERROR, "the hook failed"),),
        started_at=5,
    )


EXAMPLES: list[EngineEvent] = [
    TurnStarted(TurnKind.REGULAR, None, NOW),
    TurnEnded(status=TurnStatus.FAILED, started_at=None, ended_at=NOW, seconds=None),
    TurnEnded(status=TurnStatus.COMPLETED, started_at=NOW, ended_at=NOW, seconds=1.0),
    TurnEnded(
        status=TurnStatus.INTERRUPTED,
        started_at=NOW,
        ended_at=NOW,
        seconds=1.0,
        reason=TurnAbortReason.REPLACED,
    ),
    *(ItemStarted(item, 5) for item in (AgentMessage("a", ()), command("a"), patch("b"), Plan("b", ""))),
    *(ItemCompleted(item, 5, 6) for item in (AgentMessage("a", ("x",)), command("a"), patch("b"))),
    grown("a", "x"),
    grown("a", "x", (True, 0)),
    ReasoningSummaryPart("b", 0),
    grown("b", "x", (False, 0)),
    CommandOutput("a", ExecOutputStream.STDERR, b"\xe2\x82"),
    TerminalInput("a", "1", "x"),
    CommandRunning("a"),
    PatchWriting(patch("b"), asked=False),
    AttemptFailed(TurnError("x"), 1, 2),
    GoalUpdated(Goal(objective="x", token_budget=5, created_at=1, updated_at=2)),
    GoalCleared(),
    HookStarted(hook_run("running")),
    HookCompleted(hook_run("failed")),
    ModelRerouted("m", "n"),
    SettingsChanged(
        ThreadSettings(
            cwd="/",
            approval_policy=AskForApproval.ON_FAILURE,
            sandbox_policy=ReadOnly(),
            model="m",
            effort=None,
            summary=ReasoningSummary.AUTO,
        ),
        model_provider="p",
    ),
    *(McpServerStateChanged("s", state, "x", login_required=True) for state in McpServerState),
    McpServersSettled(("x",)),
    CommandApprovalQuestion(call_id="a", command=("x",), cwd="/", parsed=()),
    PatchApprovalQuestion(call_id="b", changes={}),
    ElicitationQuestion(server="s", id="1", message="m"),
    ToolCallQuestion(call_id="a", tool="t", namespace=None, arguments={}),
    UserInputQuestion("a", (UserQuestion(id="i", header="h", text="t", choices=(Choice("l", "d"),)),)),
    McpCallQuestion(
        call_id="a",
        server="s",
        tool="t",
        description=None,
        annotations=None,
        arguments={},
        lasting=(McpCallDecision.SESSION, McpCallDecision.ALWAYS),
        as_inquiry=False,
    ),
    ProgressNotice(message="x"),
    DeprecationNotice(summary="x"),
    ErrorNotice(message="x"),
    WarningNotice(message="x"),
    UndoStarted(),
    UndoCompleted(success=False, message="x"),
    SessionClosed(),
    TokenUsageUpdated(info=USAGE, rate_limits=LIMITS),
    TokenUsageUpdated(rate_limits=RateLimitSnapshot(primary=RateLimitWindow(used_percent=float("nan")))),
    PlanUpdated(explanation=None, plan=tuple(PlanItemArg(step=word, status=word) for word in StepStatus)),
    TurnDiffUpdated(unified_diff="x"),
    HistoryItemRecorded(item=RAW),
    HistoryEntryFound(offset=0, log_id=0),
    CustomPromptsListed(()),
    McpToolsListed(tools={}, resources={}, resource_templates={}, auth_statuses={}),
]

EVENTS: list[EngineEvent] = with_samples(EXAMPLES, get_args(EngineEvent))


@given(st.lists(st.tuples(st.sampled_from([None, TURN, OTHER_TURN]), st.sampled_from(EVENTS)), max_size=30))
def test_no_event_is_too_much_in_any_order(events: list[tuple[str | None, EngineEvent]]) -> None:
    """Each line is also valid, and an item is started once and completed at most once."""
    seen = Recording(raw=True)
    for turn_id, event in events:
        seen.take(SessionEvent("7", turn_id, event))
        if isinstance(event, Question):
            seen.adapter.question(event, turn_id, seen.live)
        seen.adapter.snapshot(seen.live)
        running_turn(seen.live)
    started = [each["item"]["id"] for each in seen.params("item/started")]
    completed = [each["item"]["id"] for each in seen.params("item/completed")]
    assert len(set(started)) == len(started)
    assert len(set(completed)) == len(completed)
    assert set(completed) <= set(started)


ids = st.sampled_from(["a", "a-2", "b"])
kinds = st.sampled_from(["message", "reasoning", "command", "patch", "terminal"])
steps = st.lists(
    st.tuples(
        st.sampled_from(["start", "delta", "complete", "cut_text", "detach", "end_detached"]), ids, kinds
    ),
    max_size=12,
)
ends = st.sampled_from(TurnStatus)


def item_of(kind: str, id: str, *, over: bool) -> Item:
    status = ItemStatus.COMPLETED if over else ItemStatus.IN_PROGRESS
    match kind:
        case "message":
            return AgentMessage(id, ("x",) if over else ())
        case "reasoning":
            return Reasoning(id, ("x",) if over else ())
        case "patch":
            return patch(id, status=status)
        case "terminal":
            return command(id, status=status, source=CommandSource.TERMINAL)
        case _:
            return command(id, status=status)


@settings(max_examples=60)
@given(st.lists(st.tuples(steps, ends), min_size=1, max_size=3))
def test_whatever_a_turn_emits_is_in_order(
    plan: list[tuple[list[tuple[str, str, str]], TurnStatus]],
) -> None:
    seen = Recording()
    detached: list[tuple[tuple[str, str], StartedItem]] = []
    for number, (steps, status) in enumerate(plan):
        turn = seen.turn(f"{TURN}-{number}")
        turn.turn_started(TurnKind.REGULAR, None)
        open_items: dict[str, str] = {}
        for step, id, kind in steps:
            match step:
                case "start" if any(each == (id, turn.turn_id) for each, _ in detached):
                    pass  # the model used the id of an open terminal: see ADR 31, what is missing
                case "start":
                    turn.start(item_of(kind, id, over=False))
                    open_items[id] = kind
                case "delta":
                    turn.write(id, "x") if turn.is_open(id) else turn.emit(grown(id, "x"))
                    turn.emit(CommandOutput(id, ExecOutputStream.STDOUT, b"x"))
                case "complete" if id in open_items:
                    turn.complete(item_of(open_items.pop(id), id, over=True))
                case "cut_text":
                    turn.cut_text()
                    open_items = {
                        each: what
                        for each, what in open_items.items()
                        if what not in ("message", "reasoning")
                    }
                case "detach" if open_items.get(id) == "terminal":
                    del open_items[id]
                    if not any(each == (id, turn.turn_id) for each, _ in detached):
                        detached.append(((id, turn.turn_id), turn.detach(id)))
                    else:
                        turn.cut(id)
                case "end_detached" if detached:
                    (ended, turn_id), begun = detached.pop()
                    turn.complete_detached(item_of("terminal", ended, over=True), begun, turn_id)
                case _:
                    pass
        turn.turn_ended(
            status,
            error=TurnError("x") if status is TurnStatus.FAILED else None,
            reason=TurnAbortReason.INTERRUPTED if status is TurnStatus.INTERRUPTED else None,
        )
    check_laws(seen.messages)
