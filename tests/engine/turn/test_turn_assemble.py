"""Model events become items, plans among them: order, ids, omissions, for any cut."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.engine.model.prompt import (
    OutputItemAdded,
    OutputItemDone,
    ReasoningSummaryPartAdded,
)
from app_server.engine.turn.emitter import TurnEmitter
from app_server.engine.turn.stream_assembler import Piece, PlanEdge, PlanFinder, ReplyAssembler, Visible
from app_server.engine.turn.turn_items import last_assistant_text
from app_server_protocol.encoding import Json
from app_server_protocol.engine.events import (
    EngineEvent,
    ItemCompleted,
    ItemStarted,
    ItemTextGrown,
    TurnAbortReason,
    TurnEnded,
    TurnStatus,
)
from app_server_protocol.engine.items import AgentMessage, Reasoning, WebSearch
from app_server_protocol.responses import (
    MessageItem,
    OutputText,
    ReasoningResponseItem,
    ReasoningText,
    SearchAction,
    SummaryText,
    WebSearchCall,
    parse_response_item,
)
from tests.support.event_sink import EventSink
from tests.support.written_texts import content_deltas, summary_deltas, text_deltas


def play(*events: Visible, raw: bool = False, messages: bool = True, end: bool = False) -> list[EngineEvent]:
    emitted: list[EngineEvent] = []
    names = iter(f"new-{n}" for n in range(100))
    emitter = TurnEmitter(EventSink(lambda each: emitted.append(each.event)), "7", "turn", lambda: 0.0)
    assembler = ReplyAssembler(emitter, lambda: next(names), raw_reasoning=raw, show_messages=messages)
    for event in events:
        assembler.take(event)
    if end:
        emitter.turn_ended(TurnStatus.INTERRUPTED, reason=TurnAbortReason.INTERRUPTED)
    return emitted


def kinds(emitted: list[EngineEvent]) -> list[str]:
    return [type(event).__name__ for event in emitted]


def message(text: str | None, id: str | None = "m") -> MessageItem:
    parts = () if text is None else (OutputText(text=text),)
    return MessageItem(role="assistant", content=parts, id=id)


def item_ids(emitted: list[EngineEvent]) -> list[str]:
    ids: list[str] = []
    for event in emitted:
        if isinstance(event, ItemStarted | ItemCompleted):
            ids.append(event.item.id)
        elif isinstance(event, ItemTextGrown):
            ids.append(event.item_id)
    return ids


def test_a_message_is_emitted_as_it_is_written() -> None:
    emitted = play(
        OutputItemAdded(message(None)),
        *text_deltas("Hel", "lo"),
        OutputItemDone(message("Hello")),
    )
    assert kinds(emitted) == ["ItemStarted", "ItemTextGrown", "ItemTextGrown", "ItemCompleted"]
    assert set(item_ids(emitted)) == {"m"}


def test_an_item_that_comes_whole_is_begun_and_completed() -> None:
    emitted = play(OutputItemDone(message("Hello")))
    assert kinds(emitted) == ["ItemStarted", "ItemCompleted"]
    assert isinstance(emitted[0], ItemStarted)
    assert not emitted[0].announced


def test_a_delta_without_an_item_begins_one() -> None:
    emitted = play(*text_deltas("x"), OutputItemDone(message("x")))
    assert kinds(emitted) == ["ItemStarted", "ItemTextGrown", "ItemCompleted"]
    assert set(item_ids(emitted)) == {"new-0"}, "an item keeps the id that it began with"


def test_an_item_without_an_id_has_one_name_from_begin_to_end() -> None:
    emitted = play(OutputItemAdded(message(None, None)), OutputItemDone(message("x", None)))
    assert set(item_ids(emitted)) == {"new-0"}
    assert isinstance(emitted[0], ItemStarted)
    assert emitted[0].own_id


def test_each_item_without_an_id_has_a_name_of_its_own() -> None:
    emitted = play(OutputItemDone(message("x", None)), OutputItemDone(message("y", None)))
    first, second = item_ids(emitted)[::2]
    assert first != second


@pytest.mark.parametrize("kind", ["message", "reasoning"])
def test_an_item_that_is_cut_ends_once_with_what_there_is(kind: str) -> None:
    if kind == "message":
        emitted = play(OutputItemAdded(message(None)), *text_deltas("Hel", "l"), end=True)
    else:
        added = OutputItemAdded(ReasoningResponseItem(id="r", summary=()))
        emitted = play(added, *summary_deltas("Hel", "l"), end=True)
    (cut,) = [event for event in emitted if isinstance(event, ItemCompleted)]
    assert cut.cut
    assert (cut.item.text if isinstance(cut.item, AgentMessage) else "") == (
        "Hell" if kind == "message" else ""
    )
    assert isinstance(cut.item, AgentMessage) or (
        isinstance(cut.item, Reasoning) and cut.item.summary == ("Hell",)
    )
    assert isinstance(emitted[-1], TurnEnded)


def test_reasoning_is_summarised_and_raw() -> None:
    item = ReasoningResponseItem(
        id="r", summary=(SummaryText(text="short"),), content=(ReasoningText(text="long"),)
    )
    events: tuple[Visible, ...] = (
        OutputItemAdded(ReasoningResponseItem(id="r", summary=())),
        *summary_deltas("sh"),
        ReasoningSummaryPartAdded(1),
        *content_deltas("lo"),
        OutputItemDone(item),
    )
    for raw in (False, True):
        emitted = play(*events, raw=raw)
        assert kinds(emitted) == [
            *("ItemStarted", "ItemTextGrown", "ReasoningSummaryPart"),
            *("ItemTextGrown", "ItemCompleted"),
        ]
        grown = emitted[3]
        assert isinstance(grown, ItemTextGrown)
        assert (grown.item_id, grown.part, grown.text.text()) == ("r", (False, 0), "lo")
        started, ended = emitted[0], emitted[-1]
        assert isinstance(started, ItemStarted)
        assert isinstance(ended, ItemCompleted)
        assert ended.item == Reasoning("r", ("short",), ("long",), show_content=raw)
    [*_, cut, _] = play(*events[:-1], end=True)
    assert isinstance(cut, ItemCompleted)
    assert cut.item == Reasoning("r", ("sh",), ("lo",))


def test_a_reviewers_messages_are_not_shown_but_its_searches_are() -> None:
    search = WebSearchCall(id="w", status="completed", action=SearchAction(query="q"))
    emitted = play(*text_deltas("x"), OutputItemDone(message("x")), OutputItemDone(search), messages=False)
    assert kinds(emitted) == ["ItemStarted", "ItemCompleted"]


@pytest.mark.parametrize(
    ("action", "looked_for"),
    [
        ({"type": "search", "query": "q"}, "q"),
        ({"type": "search", "queries": ["a"]}, "a"),
        ({"type": "search", "queries": ["a", "b"]}, "a ..."),
        ({"type": "search", "query": "q", "queries": ["q", "r"]}, "q"),
        ({"type": "search", "query": 5, "queries": [5]}, ""),
        ({"type": "open_page", "url": "https://a.example"}, "https://a.example"),
        ({"type": "find_in_page", "url": "https://a.example", "pattern": "x"}, "'x' in https://a.example"),
        ({"type": "find_in_page", "pattern": "x"}, "'x'"),
        ({"type": "dream"}, ""),
    ],
)
def test_everything_that_a_provider_looks_up_is_one_item(action: Json, looked_for: str) -> None:
    search = parse_response_item(
        {"type": "web_search_call", "id": "w", "status": "completed", "action": action}
    )
    emitted = play(OutputItemAdded(search), OutputItemDone(search))
    assert kinds(emitted) == ["ItemStarted", "ItemCompleted"]
    assert item_ids(emitted) == ["w", "w"]
    end = emitted[-1]
    assert isinstance(end, ItemCompleted)
    assert isinstance(end.item, WebSearch)
    assert end.item.query == looked_for


@pytest.mark.parametrize(
    ("items", "last"),
    [
        ([], None),
        ([message("a"), message("")], "a"),
        ([message("a"), message("b")], "b"),
        ([message("a"), message(None)], "a"),
        ([message("a"), MessageItem(role="user", content=(OutputText(text="u"),))], "a"),
        ([message("a"), message("b").model_copy(update={"phase": "commentary"})], "a"),
        ([message("a").model_copy(update={"phase": "commentary"}), message("")], "a"),
        ([MessageItem(role="assistant", content=(OutputText(text="a"), OutputText(text="b")))], "ab"),
    ],
)
def test_the_last_words_are_the_assistants(items: list[MessageItem], last: str | None) -> None:
    assert last_assistant_text(items) == last


MESSAGES = st.lists(
    st.sampled_from(["<proposed_plan>", "</proposed_plan>", "<propo", "a", "\n", "\n", " ", "é"]), max_size=20
).map("".join)


def found(*deltas: str) -> list[str]:
    """Return `plan: text` and `said: text`, with neighbours of one kind joined."""
    finder, out = PlanFinder(), list[str]()
    pieces: list[Piece] = [piece for delta in deltas for piece in finder.feed(delta)]
    for piece in [*pieces, *finder.finish()]:
        match piece:
            case PlanEdge.BEGINS:
                out.append("plan: ")
            case PlanEdge.ENDS:
                out.append("said: ")
            case text:
                if not out:
                    out.append("said: ")
                out[-1] += text
    return [each for each in out if each != "said: "]


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("hello", ["said: hello"]),
        ("a\n<proposed_plan>\n# P\n- x\n</proposed_plan>\nb", ["said: a\n", "plan: # P\n- x\n", "said: b"]),
        ("<proposed_plan>\nx", ["plan: x"]),
        ("  <proposed_plan>  \nx\n</proposed_plan>", ["plan: x\n"]),
        ("a <proposed_plan>\nx", ["said: a <proposed_plan>\nx"]),
        ("<proposed_plan> x\ny", ["said: <proposed_plan> x\ny"]),
        ("</proposed_plan>\nx", ["said: </proposed_plan>\nx"]),
        (
            "<proposed_plan>\n1\n</proposed_plan>\n<proposed_plan>\n2\n</proposed_plan>\n",
            ["plan: 1\n", "plan: 2\n"],
        ),
    ],
)
def test_a_plan_stands_between_tags_on_lines_of_their_own(message: str, expected: list[str]) -> None:
    assert found(message) == expected
    assert found(*message) == expected


@given(MESSAGES, st.data())
def test_how_a_message_is_cut_changes_nothing(message: str, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(message)), max_size=6)))
    places = [0, *cuts, len(message)]
    deltas = [message[start:end] for start, end in pairwise(places)]
    assert found(*deltas) == found(message)


@given(MESSAGES)
def test_nothing_but_tags_is_left_out(message: str) -> None:
    kept = "".join(each.partition(": ")[2] for each in found(message))
    tags = [line for line in message.split("\n") if line.strip() in ("<proposed_plan>", "</proposed_plan>")]
    if not tags:
        assert kept == message
    assert len(message) - len(kept) <= sum(len(tag) + 1 for tag in tags)


def test_text_is_handed_on_as_soon_as_it_can_be_no_tag() -> None:
    finder = PlanFinder()
    assert list(finder.feed("Hel")) == ["Hel"]
    assert list(finder.feed("lo <proposed_plan>")) == ["lo <proposed_plan>"]
    assert list(finder.feed("\n<prop")) == ["\n"]
    assert list(finder.feed("erty>")) == ["<property>"]
    assert list(finder.feed(" " * 100)) == [" " * 100]
