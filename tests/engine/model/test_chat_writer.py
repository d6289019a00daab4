"""Requests to the Chat Completions API: answers, roles, ids, thoughts and images in the forms that providers accept."""

import json
import re
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.engine.config.quirk_settings import ToolIds
from app_server.engine.model.answers import BEGINS, lenient_arguments
from app_server.engine.model.call_ids import CallIds
from app_server.engine.model.catalogue import PLAIN
from app_server.engine.model.chat_writer import GOES_ON, NO_SIGNATURE, ChatWriter
from app_server.engine.model.prompt import FunctionTool, Prompt, RequestSettings
from app_server.engine.model.quirks import Quirks
from app_server.engine.model.sent_items import HIDDEN_IMAGE, SentItems, has_new_image
from app_server_protocol.encoding import Json
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
    ReasoningText,
    ResponseItem,
)
from app_server_protocol.values import replace

SETTINGS = RequestSettings(model="m", row=PLAIN, conversation_id="c")
PICTURE = "data:image/png;base64,AAAA"


def user(text: str, role: str = "user") -> MessageItem:
    return MessageItem(role=role, content=(InputText(text=text),))


def said(text: str, answer: str | None = None) -> MessageItem:
    return MessageItem(role="assistant", content=(OutputText(text=text),), origin=origin(answer))


def origin(answer: str | None, provider: str = "mine", **kept: Json) -> ItemOrigin | None:
    return (
        None
        if answer is None
        else ItemOrigin(answer=answer, provider=provider, model="m", wire="chat", kept=kept)
    )


def call(id: str, answer: str | None = None, arguments: str = "{}", **kept: Json) -> FunctionCall:
    return FunctionCall(name="shell", arguments=arguments, call_id=id, origin=origin(answer, **kept))


def output(id: str, text: str = "done") -> FunctionCallOutput:
    return FunctionCallOutput(call_id=id, output=FunctionCallOutputPayload(content=text))


def thought(
    text: str, answer: str | None = None, provider: str = "mine", **kept: Json
) -> ReasoningResponseItem:
    return ReasoningResponseItem(content=(ReasoningText(text=text),), origin=origin(answer, provider, **kept))


def messages(items: Sequence[ResponseItem], writer: ChatWriter | None = None, **quirks: Json) -> list[Json]:
    body = (writer or ChatWriter()).body(
        Prompt(instructions="I", input=items), SETTINGS, Quirks(**quirks), "mine"
    )
    written: list[Json] = json.loads(body)["messages"]
    return written


def test_calls_of_one_answer_are_one_message_and_their_outputs_follow() -> None:
    items: list[ResponseItem] = [
        user("go"),
        said("Two.", "a"),
        call("1", "a"),
        output("1"),
        call("2", "a"),
        output("2"),
        call("3", "b"),
        output("3"),
    ]
    _, _, first, one, two, second, three = messages(items)
    assert [each["id"] for each in first["tool_calls"]] == ["1", "2"]
    assert (first["content"], one["tool_call_id"], two["tool_call_id"]) == ("Two.", "1", "2")
    assert [each["id"] for each in second["tool_calls"]] == ["3"]
    assert three["role"] == "tool"


def test_developer_messages_are_part_of_the_system_message_or_of_the_users() -> None:
    items: list[ResponseItem] = [
        user("first", "developer"),
        user("hi"),
        said("yes"),
        user("mind", "developer"),
        user("now"),
    ]
    assert messages(items) == [
        {"role": "system", "content": "I\n\nfirst"},
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "yes"},
        {"role": "user", "content": "<instructions>\nmind\n</instructions>\n\nnow"},
    ]


def test_nothing_blank_is_sent() -> None:
    assert messages([user("hi"), said(" \n"), user("again")])[1:] == [
        {"role": "user", "content": "hi\n\nagain"}
    ]


def test_messages_alternate_also_after_answers_that_broke_off() -> None:
    items: list[ResponseItem] = [said("One", "a"), said("Two", "b"), call("1", "c"), output("1"), user("go")]
    begin, answer, _, last = messages(items)[1:]
    assert begin == {"role": "user", "content": BEGINS}
    assert answer["content"] == "One\n\nTwo"
    assert [each["id"] for each in answer["tool_calls"]] == ["1"]
    assert last["content"] == "go"


def test_thoughts_that_came_in_no_field_have_none_in_which_they_go_back() -> None:
    """Such thoughts came as parts of the content, or in tags of the text."""
    assert set(messages([user("go"), thought("why", "a"), said("so", "a")])[2]) == {"role", "content"}


def test_between_outputs_and_the_users_words_stands_an_answer_where_templates_want_it() -> None:
    items: list[ResponseItem] = [user("go"), call("1"), output("1"), user("stop")]
    assert [each["role"] for each in messages(items)[2:]] == ["assistant", "tool", "user"]
    assert messages(items, after_tool="assistant")[4] == {"role": "assistant", "content": GOES_ON}


def test_images_of_tools_follow_the_outputs_of_their_answer() -> None:
    seen = FunctionCallOutputPayload(
        content="x", content_items=(InputText(text="x"), InputImage(image_url=PICTURE))
    )
    items: list[ResponseItem] = [
        user("go"),
        call("1", "a"),
        FunctionCallOutput(call_id="1", output=seen),
        call("2", "a"),
        output("2"),
    ]
    *_, first, second, last = messages(items)
    assert first["content"] == "x\n(the picture follows)"
    assert second["tool_call_id"] == "2"
    assert last == {"role": "user", "content": [{"type": "image_url", "image_url": {"url": PICTURE}}]}


def test_arguments_that_are_no_object_go_back_as_one() -> None:
    [_, _, answer, _] = messages([user("go"), call("1", arguments="{broken"), output("1")])
    assert answer["tool_calls"][0]["function"]["arguments"] == "{}"


def test_signatures_go_back_with_their_calls_and_foreign_calls_have_the_placeholder() -> None:
    signature = {"google": {"thought_signature": "s"}}
    items: list[ResponseItem] = [
        user("go"),
        call("1", "a", extra_content=signature),
        output("1"),
        call("2"),
        output("2"),
    ]
    written = messages(items, thoughts_field="extra_content")
    calls = [each for message in written for each in message.get("tool_calls", ())]
    assert [each["extra_content"] for each in calls] == [signature, NO_SIGNATURE]


def test_thoughts_go_back_under_their_name_to_the_provider_that_made_them() -> None:
    mine = thought("why", "a", field="reasoning_content")
    assert messages([user("go"), mine, call("1", "a"), output("1")])[2]["reasoning_content"] == "why"
    foreign: list[ResponseItem] = [user("go"), thought("why", "a", "other"), said("so", "a")]
    assert set(messages(foreign)[2]) == {"role", "content"}
    assert (
        messages(foreign, thoughts_field="reasoning_content", empty_thoughts=True)[2]["reasoning_content"]
        == ""
    )


@pytest.mark.parametrize(
    ("form", "pattern"), [("plain", "[A-Za-z0-9_-]{1,64}"), ("nine", "[A-Za-z0-9]{9}"), ("forty", ".{1,40}")]
)
@given(ids=st.lists(st.text(max_size=90), max_size=8))
def test_call_ids_have_the_form_of_the_provider(form: ToolIds, pattern: str, ids: list[str]) -> None:
    given_ids = CallIds(form)
    assert all(re.fullmatch(pattern, given_ids.of(id)) for id in ids)


def test_an_id_that_comes_again_is_another_one() -> None:
    ids = CallIds("plain")
    assert [ids.of("c"), ids.of("d"), ids.of("c")] == ["c", "d", "c_2"]


ITEMS = st.lists(
    st.one_of(
        st.builds(user, st.text(max_size=5), st.sampled_from(["user", "developer"])),
        st.builds(said, st.text(max_size=5), st.sampled_from([None, "a", "b"])),
        st.builds(thought, st.text(max_size=5), st.sampled_from([None, "a", "b"])),
        st.builds(call, st.sampled_from("123"), st.sampled_from([None, "a", "b"])),
        st.builds(output, st.sampled_from("123")),
    ),
    max_size=14,
)


@given(items=ITEMS, more=ITEMS)
def test_any_history_is_written_with_each_call_answered_and_the_next_request_begins_the_same(
    items: list[ResponseItem], more: list[ResponseItem]
) -> None:
    writer = ChatWriter()
    written = messages(items, writer)
    open_calls: list[str] = []
    for n, each in enumerate(written):
        assert (each["role"] == "system") == (n == 0)
        if each["role"] == "tool":
            assert each["tool_call_id"] == open_calls.pop(0)
            continue
        assert not open_calls
        assert each.get("content") or each.get("tool_calls")
        open_calls = [one["id"] for one in each.get("tool_calls", ())]
    assert not open_calls
    again = [*items, *more]
    assert messages(again, writer) == messages(again)


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("", {}),
        ("null", {}),
        (' {"a": 1}\n', {"a": 1}),
        ('"{\\"a\\": 1}"', {"a": 1}),
        ('{"a": "x\ny"}', {"a": "x\ny"}),
        ('{"a": 1}{"a": 1}', {"a": 1}),
        ('{"a": 1}}', {"a": 1}),
        ('{"a": 1}</tool_call>', {"a": 1}),
        ('{"a": 1} and more', None),
        ("[1]", None),
        ("{broken", None),
        ("[" * 100_000, None),
    ],
)
def test_arguments_are_read_leniently(text: str, arguments: Json) -> None:
    assert lenient_arguments(text) == arguments


@given(st.text())
def test_any_text_is_read_as_arguments_or_not_at_all(text: str) -> None:
    assert lenient_arguments(text) is None or isinstance(lenient_arguments(text), dict)


def test_tools_are_offered_plainly_and_only_where_there_are_any() -> None:
    tool = FunctionTool(
        "t", "T", {"type": "object", "properties": {"a": {"const": 1}}, "$schema": "x"}, strict=True
    )
    settings = replace(SETTINGS, live_chat=True)
    body = json.loads(
        ChatWriter().body(Prompt(instructions="I", input=[], tools=[tool]), settings, Quirks(), "m")
    )
    [offered] = body["tools"]
    assert offered["function"]["parameters"] == {"type": "object", "properties": {"a": {"enum": [1]}}}
    assert offered["function"]["strict"] is True
    omit = Quirks(omit=("strict", "stream_options"))
    body = json.loads(
        ChatWriter().body(Prompt(instructions="I", input=[], tools=[tool]), settings, omit, "m")
    )
    assert "strict" not in body["tools"][0]["function"]
    assert "stream_options" not in body
    assert "tools" not in json.loads(
        ChatWriter().body(Prompt(instructions="I", input=[]), settings, Quirks(), "m")
    )


MARK = {"type": "ephemeral"}


def test_claude_behind_a_gateway_gets_the_marks_of_its_prompt_cache() -> None:
    tools = [FunctionTool(name, "T", {"type": "object", "properties": {}}) for name in "ab"]
    writer = ChatWriter()

    def sent(items: list[ResponseItem], ttl: str | None = None, **quirks: Json) -> Json:
        of = Prompt(instructions="I", input=items, tools=tools)
        return json.loads(writer.body(of, SETTINGS, Quirks(cache_control=True, **quirks), "mine", ttl))

    def text(words: str) -> Json:
        return [{"type": "text", "text": words, "cache_control": MARK}]

    items: list[ResponseItem] = [user("go"), call("1", "a"), output("1", "out")]
    first = sent(items)
    assert first["messages"][0] == {"role": "system", "content": text("I")}
    assert first["messages"][-1] == {"role": "tool", "tool_call_id": "1", "content": text("out")}
    assert [each.get("cache_control") for each in first["tools"]] == [None, MARK]
    assert json.dumps(first).count("cache_control") == 3

    picture = MessageItem(role="user", content=(InputText(text="look"), InputImage(image_url=PICTURE)))
    later = sent([*items, said("so", "b"), picture])["messages"]
    assert later[3] == {"role": "tool", "tool_call_id": "1", "content": "out"}
    assert [set(part) for part in later[-1]["content"]] == [
        {"type", "text", "cache_control"},
        {"type", "image_url"},
    ]
    assert sent(items, "1h")["messages"][0]["content"][0]["cache_control"] == MARK | {"ttl": "1h"}
    assert "cache_control" not in json.dumps(sent(items, omit=("cache_control",)))
    only_texts = sent(items, text_parts=False)
    assert [each["content"] for each in only_texts["messages"]] == ["I", "go", None, "out"]
    assert "cache_control" not in json.dumps(messages(items))


def test_a_message_without_text_gets_no_mark() -> None:
    picture = MessageItem(role="user", content=(InputImage(image_url=PICTURE),))
    settings = replace(SETTINGS, row=replace(PLAIN, input_modalities=("text", "image")))
    of = Prompt(instructions="", input=[picture])
    body = ChatWriter().body(of, settings, Quirks(cache_control=True), "mine")
    assert b"cache_control" not in body
    assert b"image_url" in body
    nothing = ChatWriter().body(Prompt(instructions="", input=[]), settings, Quirks(cache_control=True), "m")
    assert json.loads(nothing)["messages"] == []


def test_what_a_provider_refused_of_the_history_is_not_sent_again() -> None:
    picture = MessageItem(role="user", content=(InputText(text="look"), InputImage(image_url=PICTURE)))
    items: list[ResponseItem] = [picture, thought("why"), said("so")]
    sent = SentItems()
    assert sent.of(items) is items
    assert sent.forget_thoughts(items)
    assert not sent.forget_thoughts(items)
    assert sent.hide_images(items)
    later = thought("later")
    shown = sent.of([*items, later])
    assert [each.type for each in shown] == ["message", "message", "reasoning"]
    assert isinstance(shown[0], MessageItem)
    assert [getattr(part, "text", None) for part in shown[0].content] == ["look", HIDDEN_IMAGE]
    assert sent.of([*items, later])[0] is shown[0]


def test_the_image_of_the_users_last_message_is_new() -> None:
    picture = MessageItem(role="user", content=(InputImage(image_url=PICTURE),))
    assert has_new_image([user("hi"), picture, call("1"), output("1")])
    assert not has_new_image([picture, said("so"), user("go on")])
    assert not has_new_image([user("look"), call("1"), output("1"), picture]), "what a tool shows"
    assert not has_new_image([])


def test_calls_are_written_one_by_one_for_templates_that_take_one() -> None:
    items: list[ResponseItem] = [
        user("go"),
        *(thought("why", "a", field="reasoning"), said("Two.", "a")),
        *(call("1", "a"), output("1"), call("2", "a"), output("2")),
    ]
    first, one, second, two = messages(items, single_calls=True, null_content=False)[2:]
    assert (first["content"], first["reasoning"], second["content"]) == ("Two.", "why", "")
    assert [each["id"] for each in (*first["tool_calls"], *second["tool_calls"])] == ["1", "2"]
    assert (one["tool_call_id"], two["tool_call_id"]) == ("1", "2")
    assert "reasoning" not in second
