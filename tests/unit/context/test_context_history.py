"""Whatever was recorded, in whatever order turns were interrupted: a request has calls and outputs in pairs."""

from collections import Counter
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from app_server.core.context.history import ConversationHistory, aborted_output, call_key, normalise
from protocol.responses import (
    CustomToolCall,
    CustomToolCallOutput,
    FunctionCall,
    FunctionCallOutput,
    FunctionCallOutputPayload,
    GhostCommit,
    GhostSnapshot,
    InputText,
    LocalShellCall,
    LocalShellExec,
    LocalShellStatus,
    MessageItem,
    OtherItem,
    ResponseItem,
)

Call = FunctionCall | CustomToolCall | LocalShellCall
CALLS = (FunctionCall, CustomToolCall, LocalShellCall)
OUTPUTS = (FunctionCallOutput, CustomToolCallOutput)


def text(words: str, role: str = "user") -> MessageItem:
    return MessageItem(role=role, content=(InputText(text=words),))


def function(id: str) -> FunctionCall:
    return FunctionCall(name="shell", arguments="{}", call_id=id)


def function_output(id: str) -> FunctionCallOutput:
    return FunctionCallOutput(call_id=id, output=FunctionCallOutputPayload(content="done"))


def local(id: str) -> LocalShellCall:
    return LocalShellCall(
        call_id=id, status=LocalShellStatus.COMPLETED, action=LocalShellExec(command=("true",))
    )


ids = st.sampled_from(["a", "b", "c"])
calls: st.SearchStrategy[Call] = st.one_of(
    ids.map(function),
    ids.map(lambda name: CustomToolCall(call_id=name, name="apply_patch", input="x")),
    ids.map(local),
)
outputs: st.SearchStrategy[ResponseItem] = st.one_of(
    ids.map(function_output), ids.map(lambda name: CustomToolCallOutput(call_id=name, output="done"))
)
others: st.SearchStrategy[ResponseItem] = st.one_of(
    st.just(text("hi")),
    st.just(text("hello", "assistant")),
    st.just(GhostSnapshot(ghost_commit=GhostCommit(id="0" * 40))),
    st.just(OtherItem.model_validate({"type": "dream"})),
)
histories = st.lists(st.one_of(calls, outputs, others), max_size=30)


def pairs_are_whole(items: Sequence[ResponseItem]) -> bool:
    """Every output has a call before it, every call one output after it."""
    waiting: Counter[tuple[bool, str]] = Counter()
    for item in items:
        if isinstance(item, CALLS):
            waiting[call_key(item)] += 1
        elif isinstance(item, OUTPUTS):
            key = (isinstance(item, CustomToolCallOutput), item.call_id)
            if not waiting[key]:
                return False
            waiting[key] -= 1
    return not any(waiting.values())


@given(histories)
def test_a_request_never_has_an_orphan(items: list[ResponseItem]) -> None:
    assert pairs_are_whole(normalise(items))


@given(histories)
def test_nothing_else_is_lost_or_moved(items: list[ResponseItem]) -> None:
    kept = [item for item in normalise(items) if not isinstance(item, OUTPUTS)]
    assert kept == [item for item in items if not isinstance(item, (*OUTPUTS, GhostSnapshot, OtherItem))]


@given(histories)
def test_a_normal_history_stays_as_it_is(items: list[ResponseItem]) -> None:
    once = normalise(items)
    assert normalise(once) == once


@given(st.lists(histories, max_size=5))
def test_the_prompt_that_grows_is_the_one_that_is_made_anew(batches: list[list[ResponseItem]]) -> None:
    history = ConversationHistory()
    for batch in batches:
        history.record(batch)
        assert history.for_prompt() == normalise(history.items)


@given(
    st.lists(
        st.tuples(st.lists(st.tuples(calls, st.booleans()), max_size=4), st.booleans()),
        min_size=1,
        max_size=6,
    )
)
def test_turns_that_are_interrupted_anywhere_leave_pairs(
    turns: list[tuple[list[tuple[Call, bool]], bool]],
) -> None:
    """As a turn does it: calls with outputs in the model's order; one that was under way gets one that says so."""
    history = ConversationHistory()
    for replies, interrupted in turns:
        history.record([text("go on")])
        for call, finished in replies:
            if finished or interrupted:
                output = aborted_output(call, "done" if finished else "aborted by user after 0.1s")
                history.record([call, output])
        assert pairs_are_whole(history.items)
        assert history.for_prompt() == list(history.items)


def test_a_call_without_output_is_followed_by_an_aborted_one() -> None:
    items: list[ResponseItem] = [function("a"), text("and then?")]
    made = normalise(items)
    assert [type(item) for item in made] == [FunctionCall, FunctionCallOutput, MessageItem]
    assert made[1] == aborted_output(function("a"))


def test_an_output_belongs_to_the_earliest_call_that_waits() -> None:
    items: list[ResponseItem] = [function("a"), function_output("a"), function("a")]
    made = normalise(items)
    assert made[:2] == items[:2]
    assert made[3] == aborted_output(function("a"))


def test_a_custom_output_does_not_answer_a_function() -> None:
    made = normalise([function("a"), CustomToolCallOutput(call_id="a", output="x")])
    assert made == [function("a"), aborted_output(function("a"))]


def test_a_replaced_history_forgets_what_waited() -> None:
    history = ConversationHistory([function("a")])
    history.replace([text("summary")])
    assert history.for_prompt() == [text("summary")]
    assert len(history) == 1
