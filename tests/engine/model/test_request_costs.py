"""A request repeats the one before it; only the new part is written."""

import json
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.engine.model import chat_writer, messages_blocks, messages_writer
from app_server.engine.model.catalogue import find_model
from app_server.engine.model.chat_writer import ChatWriter
from app_server.engine.model.item_cache import InputBytes, LastInput
from app_server.engine.model.messages_writer import MessagesWriter
from app_server.engine.model.prompt import Prompt, RequestSettings
from app_server.engine.model.quirks import Quirks
from app_server.engine.model.responses_writer import ResponsesWriter
from app_server_protocol.encoding import Json, json_bytes
from app_server_protocol.item_origin import ItemOrigin
from app_server_protocol.responses import (
    FunctionCall,
    FunctionCallOutput,
    FunctionCallOutputPayload,
    InputImage,
    InputText,
    MessageItem,
    OutputText,
    ReasoningResponseItem,
    ResponseItem,
    SummaryText,
)
from tests.support.claude import plain

PICTURE = "data:image/png;base64,AAAA"
PLAIN = Quirks()

Body = Callable[[Sequence[ResponseItem]], Json]


def user(words: str, role: str = "user") -> MessageItem:
    return MessageItem(role=role, content=(InputText(text=words),))


def origin(n: int, wire: str) -> ItemOrigin | None:
    return None if wire == "responses" else ItemOrigin(answer=f"{n}-r", provider="p", model="m", wire=wire)


def step(n: int, kind: str, wire: str) -> list[ResponseItem]:
    """Return the items of one step of a conversation."""
    of, id = origin(n, wire), f"c{n}"
    match kind:
        case "words":
            return [user(f"words {n}")]
        case "told":
            return [user(f"told {n}", "developer")]
        case "said":
            return [MessageItem(role="assistant", content=(OutputText(text=f"said {n}"),), origin=of)]
        case "thought":
            sealed = None if of is not None else f"sealed {n}"
            summary = (SummaryText(text=f"thought {n}"),)
            return [ReasoningResponseItem(summary=summary, encrypted_content=sealed, origin=of)]
        case "picture":
            given = MessageItem(role="user", content=(InputImage(image_url=PICTURE),))
            return [
                FunctionCall(name="view_image", arguments="{}", call_id=id, origin=of),
                given,
                _output(id),
            ]
        case _:
            return [FunctionCall(name="shell", arguments="{}", call_id=id, origin=of), _output(id)]


def _output(id: str) -> FunctionCallOutput:
    return FunctionCallOutput(call_id=id, output=FunctionCallOutputPayload(content=f"output {id}"))


def body_of(wire: str) -> Body:
    """Return the body of a writer's requests."""
    row = find_model("claude-opus-5-5" if wire == "messages" else "gpt-6.2-sol")
    settings = RequestSettings(model="m", row=row, conversation_id="c")
    responses, chat, messages = ResponsesWriter(), ChatWriter(), MessagesWriter()

    def body(items: Sequence[ResponseItem]) -> Json:
        prompt = Prompt(instructions="I", input=list(items))
        match wire:
            case "responses":
                written = responses.body(prompt, settings, PLAIN)
            case "chat":
                written = chat.body(prompt, settings, PLAIN, "p")
            case _:
                written = messages.body(prompt, settings, PLAIN, "p")
        return plain(json.loads(written))

    return body


KINDS = st.lists(st.sampled_from(["words", "told", "said", "thought", "picture", "call"]), max_size=8)
WIRES = pytest.mark.parametrize("wire", ["responses", "chat", "messages"])


@WIRES
@given(rounds=st.lists(KINDS, min_size=1, max_size=4))
def test_a_request_is_the_one_before_and_more_and_as_a_new_writer_writes_it(
    wire: str, rounds: list[list[str]]
) -> None:
    """The last message may differ, because neighbouring messages of the user are joined."""
    body, number = body_of(wire), 0
    items: list[ResponseItem] = [user("first words")]
    before: Json = None
    for kinds in rounds:
        for kind in kinds:
            number += 1
            items = [*items, *step(number, kind, wire)]
        items = [*items, user(f"round {number}")]
        sent = body(items)
        assert sent == body_of(wire)(items)
        if before is not None:
            name = "input" if wire == "responses" else "messages"
            same = len(before[name]) - 1
            assert sent[name][:same] == before[name][:same]
            assert sent.get("system") == before.get("system")
        before = sent


@pytest.mark.parametrize("wire", ["chat", "messages"])
def test_a_long_thread_writes_only_what_is_new(wire: str, monkeypatch: pytest.MonkeyPatch) -> None:
    items: list[ResponseItem] = [user("first words")]
    for n in range(400):
        for kind in ("thought", "call", "said", "words"):
            items += step(4 * n + len(kind), kind, wire)
    body = body_of(wire)
    body(items)
    written: list[Json] = []

    def counting(value: Json) -> bytes:
        written.append(value)
        return json_bytes(value)

    for module in (chat_writer, messages_writer, messages_blocks):
        monkeypatch.setattr(module, "json_bytes", counting)
    body([*items, *step(9_999, "said", wire), user("last words")])
    assert "words 3" not in str(written)
    assert len(written) < 20


def test_items_of_the_last_request_are_not_looked_at_again() -> None:
    input, looked = InputBytes(), list[ResponseItem]()

    def is_sent(item: ResponseItem) -> bool:
        looked.append(item)
        return item != hidden

    hidden, items = user("hidden"), [user("a"), user("b")]
    of = Prompt(instructions="", input=[*items, hidden])
    assert len(input.of(of, "form", is_sent, lambda item: item.to_json())) == 2
    longer = Prompt(instructions="", input=[*items, hidden, user("c")])
    assert len(input.of(longer, "form", is_sent, lambda item: item.to_json())) == 3
    assert len(looked) == 4
    input.of(longer, "other", is_sent, lambda item: item.to_json())
    assert len(looked) == 8


def test_an_input_that_does_not_begin_as_the_last_one_is_new() -> None:
    last, one, two = LastInput(), user("one"), user("two")
    assert [last.known(items, 1) for items in ([one], [one, two], [two], [two, one])] == [0, 1, 0, 1]
    assert last.known([two, one], 2) == 0
    assert last.known([two], 2) == 0
