"""A stored conversation is read back as it was emitted live: same turns, items, ids, states and times."""

import json
import uuid
from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from app_server.engine.storage.encode import stored_events
from app_server.engine.storage.turn_fold import ItemIds, TurnFold
from app_server.engine.turn.emitter import TurnEmitter
from app_server_protocol.encoding import Json
from app_server_protocol.engine.errors import ErrorClass, TurnError
from app_server_protocol.engine.events import (
    EndedItem,
    ItemCompleted,
    SessionEvent,
    TurnAbortReason,
    TurnEnded,
    TurnKind,
    TurnRecord,
    TurnRenamed,
    TurnStarted,
    TurnStatus,
)
from app_server_protocol.engine.item_values import AddFileChange, UnknownCommand
from app_server_protocol.engine.items import (
    AgentMessage,
    CommandExecution,
    ContextCompaction,
    EnteredReview,
    ExitedReview,
    FileChange,
    ImageView,
    Item,
    ItemStatus,
    McpToolCall,
    Plan,
    Reasoning,
    UserMessage,
    WebSearch,
)
from app_server_protocol.event_items import ImageInput, LocalImageInput, TextInput
from app_server_protocol.mcp import ErrResult, McpInvocation
from app_server_protocol.responses import SearchAction
from tests.engine.storage.stored import Line, turn_events
from tests.support.event_sink import EventSink

THREAD = "01a1fc2e-450f-7ed0-9b52-64722a96c4dc"

ids = st.sampled_from(["a", "a-2", "msg-1", "msg-1-2"])
texts = st.text(st.characters(codec="utf-8"), max_size=8)
words = st.text("abc ", min_size=1, max_size=8)
inputs = st.one_of(
    st.builds(TextInput, text=words),
    st.builds(ImageInput, image_url=words),
    st.builds(LocalImageInput, path=st.just("/x.png")),
)
statuses = st.sampled_from([ItemStatus.COMPLETED, ItemStatus.FAILED, ItemStatus.DECLINED])
items = st.one_of(
    st.builds(
        UserMessage,
        ids,
        st.lists(inputs, min_size=1, max_size=2).map(tuple),
        st.none() | words,
        st.none() | st.lists(inputs, min_size=1, max_size=2).map(tuple),
    ).filter(lambda message: message.sent != message.content),
    st.builds(AgentMessage, ids, st.lists(texts, max_size=1).map(tuple), st.none() | st.just("final_answer")),
    st.builds(
        Reasoning,
        ids,
        st.lists(texts, max_size=3).map(tuple),
        st.lists(texts, max_size=2).map(tuple),
        st.booleans(),
    ),
    st.builds(WebSearch, ids, texts, st.builds(SearchAction, query=texts)),
    st.builds(
        CommandExecution,
        id=ids,
        command=st.just(("bash", "-lc", "ls")),
        cwd=st.just("/w"),
        parsed=st.just((UnknownCommand(cmd="ls"),)),
        line=st.none() | texts,
        status=statuses,
        output=texts,
        exit_code=st.none() | st.integers(0, 255),
        seconds=st.none() | st.just(0.25),
    ),
    st.builds(
        FileChange,
        id=ids,
        changes=st.dictionaries(words, st.builds(AddFileChange, content=texts), max_size=2),
        status=statuses,
        stdout=texts,
    ),
    st.builds(
        McpToolCall,
        id=ids,
        invocation=st.just(McpInvocation(server="s", tool="t", arguments={"x": 1})),
        status=statuses,
        result=st.none() | st.just(ErrResult(err="no")),
    ),
    st.builds(ImageView, ids, texts),
    st.builds(EnteredReview, ids, texts, texts),
    st.builds(ExitedReview, ids, st.none()),
    st.builds(ContextCompaction, ids),
    st.builds(Plan, ids, texts),
)
ends = st.sampled_from(["completed", "failed", "interrupted"])
turns = st.lists(
    st.tuples(st.sampled_from(TurnKind), st.lists(st.tuples(items, st.booleans()), max_size=5), ends),
    max_size=4,
)


def run(plan: list[tuple[TurnKind, list[tuple[Item, bool]], str]]) -> list[SessionEvent]:
    """Return the events of these turns. An item with its flag set is cut."""
    emitted: list[SessionEvent] = []
    clock = iter(range(1_700_000_000, 1_800_000_000))
    for number, (kind, items, end) in enumerate(plan):
        turn = TurnEmitter(
            EventSink(emitted.append), str(number), str(uuid.UUID(int=number)), lambda: float(next(clock))
        )
        turn.turn_started(kind, None)
        for item, cut in items:
            turn.start(item)
            if cut:
                turn.cut(item.id)
            else:
                turn.complete(item)
        match end:
            case "completed":
                turn.turn_ended(TurnStatus.COMPLETED, last_agent_message="x")
            case "failed":
                error = TurnError("no", ErrorClass.BAD_REQUEST, 400)
                turn.turn_ended(TurnStatus.FAILED, error=error)
            case _:
                turn.turn_ended(TurnStatus.INTERRUPTED, reason=TurnAbortReason.REPLACED)
    return emitted


def stored(events: list[SessionEvent], *, identity: bool) -> list[Line]:
    lines = [line for event in events for line in stored_events(event, identity=identity)]
    return [(n, "event_msg", json.loads(line.to_json())) for n, line in enumerate(lines)]


def folded(events: Iterable[SessionEvent | TurnRenamed]) -> list[TurnRecord]:
    fold = TurnFold()
    fold.apply_all(events)
    return fold.turns


@given(turns)
def test_the_stored_conversation_is_the_live_one(
    plan: list[tuple[TurnKind, list[tuple[Item, bool]], str]],
) -> None:
    live = run(plan)
    assert folded(turn_events(THREAD, stored(live, identity=True))) == folded(live)


@given(turns)
def test_item_ids_are_unique_in_a_conversation(
    plan: list[tuple[TurnKind, list[tuple[Item, bool]], str]],
) -> None:
    found = [ended.item.id for turn in folded(run(plan)) for ended in turn.items]
    assert len(found) == len(set(found))


@given(turns)
def test_without_identity_every_reading_gives_the_same_ids(
    plan: list[tuple[TurnKind, list[tuple[Item, bool]], str]],
) -> None:
    lines = stored(run(plan), identity=False)
    assert not any({"turn_id", "item_id"} & payload.keys() for _, _, payload in lines)
    once, again = (folded(turn_events(THREAD, lines)) for _ in range(2))
    assert once == again
    other = folded(turn_events(str(uuid.uuid4()), lines))
    assert not {turn.id for turn in once} & {turn.id for turn in other}


# --- ids
@given(
    st.lists(st.tuples(st.sampled_from(["a", "a-2", "a-3", "b"]), st.sampled_from(["begin", "end", "both"])))
)
def test_no_two_items_have_one_id(steps: list[tuple[str, str]]) -> None:
    ids, given_out, opened = ItemIds(), list[str](), dict[str, str]()
    for id, step in steps:
        copy = ids.copy()
        match step:
            case "begin":
                unique = ids.begin(id)
                opened[id] = unique
                given_out.append(unique)
            case "end":
                unique = ids.end(id)
                if unique != opened.pop(id, None):
                    given_out.append(unique)
            case _:
                unique = ids.reserve(id)
                opened.pop(id, None)
                given_out.append(unique)
        assert unique.startswith(id)
        assert ids.of(id) == opened.get(id, id)
        assert getattr(copy, {"begin": "begin", "end": "end"}.get(step, "reserve"))(id) == unique
    assert len(given_out) == len(set(given_out))


def test_ids_that_repeat_are_counted() -> None:
    ids = ItemIds()
    assert [ids.reserve("a") for _ in range(3)] == ["a", "a-2", "a-3"]
    assert ids.reserve("a-2") == "a-2-2"
    assert ids.begin("b") == ids.of("b") == ids.end("b") == "b"


# --- single turns
STARTED = SessionEvent("", "t", TurnStarted(TurnKind.REVIEW, None, 5.75))
IMAGE = ImageView("i", "/x.png")


def ended(**over: Json) -> SessionEvent:
    fields = {"status": TurnStatus.COMPLETED, "started_at": 4.5, "ended_at": 9.75, "seconds": 1.23456}
    return SessionEvent("", "t", TurnEnded(**{**fields, **over}))


def test_a_turn_has_its_kind_times_and_items() -> None:
    done = SessionEvent("", "t", ItemCompleted(IMAGE, 3, 4, cut=True))
    [turn] = folded([STARTED, done, ended(error=TurnError("no"), status=TurnStatus.FAILED)])
    assert turn == TurnRecord(
        id="t",
        kind=TurnKind.REVIEW,
        state=TurnStatus.FAILED,
        items=(EndedItem(IMAGE, 3, 4, cut=True),),
        error=TurnError("no"),
        started_at=5.0,
        ended_at=9.0,
        seconds=1.235,
    )


def test_times_that_are_not_known_are_none() -> None:
    done = SessionEvent("", "t", ItemCompleted(IMAGE, 0, 0))
    [turn] = folded([done, ended(started_at=None, ended_at=0.0, seconds=None)])
    assert turn.items == (EndedItem(IMAGE, None, None),)
    assert (turn.started_at, turn.ended_at, turn.seconds) == (None, None, None)
    [turn] = folded([ended()])
    assert (turn.started_at, turn.state) == (4.0, TurnStatus.COMPLETED), "of its end alone"


def test_events_outside_of_turns_are_passed_over() -> None:
    events = [
        SessionEvent("", None, event) for event in (STARTED.event, ItemCompleted(IMAGE, 1, 2), ended().event)
    ]
    assert folded(events) == []


def test_a_turn_gets_another_name_that_no_other_one_has() -> None:
    other = SessionEvent("", "other", TurnStarted(TurnKind.REGULAR, None, 1.0))
    [turn] = folded([STARTED, TurnRenamed("t", "named"), TurnRenamed("gone", "x")])
    assert turn.id == "named"
    turns = folded([STARTED, other, TurnRenamed("t", "other")])
    assert [(turn.id, turn.state) for turn in turns] == [
        ("t", TurnStatus.INTERRUPTED),
        ("other", TurnStatus.IN_PROGRESS),
    ]
    [turn, again] = folded([STARTED, TurnRenamed("t", "named"), STARTED])
    assert (turn.id, again.id) == ("named", "t")
