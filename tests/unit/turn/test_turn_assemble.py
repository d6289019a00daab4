"""A reply's events become ours: order, ids, older forms, what is left out."""

from __future__ import annotations

import pytest

from app_server.core.model.events import (
    OutputItemAdded,
    OutputItemDone,
    OutputTextDelta,
    ReasoningContentDelta,
    ReasoningSummaryDelta,
    ReasoningSummaryPartAdded,
)
from app_server.core.turn.assemble import ReplyAssembler, Visible
from app_server.core.turn.items import last_assistant_text
from protocol.events.deltas import AgentMessageContentDeltaEvent
from protocol.events.msg import EventMsg
from protocol.events.turn import ItemCompletedEvent, ItemStartedEvent
from protocol.responses import (
    MessageItem,
    OutputText,
    ReasoningResponseItem,
    ReasoningText,
    SearchAction,
    SummaryText,
    WebSearchCall,
)


def play(*events: Visible, raw: bool = False, messages: bool = True) -> list[EventMsg]:
    said: list[EventMsg] = []
    names = iter(f"new-{n}" for n in range(100))
    assembler = ReplyAssembler(
        said.append,
        lambda: next(names),
        conversation_id="c",
        turn_id="7",
        raw_reasoning=raw,
        show_messages=messages,
    )
    for event in events:
        assembler.take(event)
    return said


def message(text: str | None, id: str | None = "m") -> MessageItem:
    parts = () if text is None else (OutputText(text=text),)
    return MessageItem(role="assistant", content=parts, id=id)


def item_ids(said: list[EventMsg]) -> list[str]:
    ids: list[str] = []
    for event in said:
        if isinstance(event, ItemStartedEvent | ItemCompletedEvent):
            ids.append(event.item.id)
        elif isinstance(event, AgentMessageContentDeltaEvent):
            ids.append(event.item_id)
    return ids


def test_a_message_is_told_as_it_is_written() -> None:
    said = play(
        OutputItemAdded(message(None)),
        OutputTextDelta("Hel"),
        OutputTextDelta("lo"),
        OutputItemDone(message("Hello")),
    )
    pair = ["agent_message_content_delta", "agent_message_delta"]
    assert [event.type for event in said] == ["item_started", *pair, *pair, "item_completed", "agent_message"]
    assert set(item_ids(said)) == {"m"}


def test_an_item_that_comes_whole_is_begun_and_completed() -> None:
    said = play(OutputItemDone(message("Hello")))
    assert [event.type for event in said] == ["item_started", "item_completed", "agent_message"]


def test_a_delta_of_no_item_is_told_in_its_older_form_only() -> None:
    assert [event.type for event in play(OutputTextDelta("x"))] == ["agent_message_delta"]


def test_deltas_and_completion_of_an_item_without_an_id_bear_one_name() -> None:
    said = play(
        OutputItemAdded(message(None, None)), OutputTextDelta("x"), OutputItemDone(message("x", None))
    )
    assert set(item_ids(said)) == {"new-0"}


def test_an_item_without_an_id_is_named_anew_when_it_is_whole() -> None:
    """As the reference does for providers of the Chat Completions API."""
    said = play(OutputItemAdded(message(None, None)), OutputItemDone(message("x", None)))
    assert item_ids(said) == ["new-0", "new-1"]


def test_each_item_without_an_id_has_a_name_of_its_own() -> None:
    said = play(OutputItemDone(message("x", None)), OutputItemDone(message("y", None)))
    assert item_ids(said) == ["new-0", "new-0", "new-1", "new-1"]


def test_reasoning_is_summarised_and_raw_only_on_request() -> None:
    item = ReasoningResponseItem(
        id="r", summary=(SummaryText(text="short"),), content=(ReasoningText(text="long"),)
    )
    events = (
        OutputItemAdded(ReasoningResponseItem(id="r", summary=())),
        ReasoningSummaryDelta("sh", 0),
        ReasoningSummaryPartAdded(1),
        ReasoningContentDelta("lo", 0),
        OutputItemDone(item),
    )
    told = [event.type for event in play(*events)]
    assert "agent_reasoning_raw_content_delta" not in told
    assert told[-1] == "agent_reasoning"
    assert "agent_reasoning_section_break" in told
    raw = [event.type for event in play(*events, raw=True)]
    assert "agent_reasoning_raw_content_delta" in raw
    assert raw[-1] == "agent_reasoning_raw_content"


def test_a_reviewers_messages_are_not_shown_but_its_searches_are() -> None:
    search = WebSearchCall(id="w", status="completed", action=SearchAction(query="q"))
    said = play(OutputTextDelta("x"), OutputItemDone(message("x")), OutputItemDone(search), messages=False)
    assert [event.type for event in said] == ["item_started", "item_completed", "web_search_end"]


@pytest.mark.parametrize(
    ("items", "last"),
    [
        ([], None),
        ([message("a"), message("b")], "b"),
        ([message("a"), message(None)], "a"),
        ([message("a"), MessageItem(role="user", content=(OutputText(text="u"),))], "a"),
    ],
)
def test_the_last_words_are_the_assistants(items: list[MessageItem], last: str | None) -> None:
    assert last_assistant_text(items) == last
