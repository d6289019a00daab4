"""Requests to the Messages API: alternation, whole answers, thoughts, cache marks, images, efforts."""

import json
from collections.abc import Sequence
from contextlib import nullcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.engine.http.sse import SseDecoder
from app_server.engine.model.answers import BEGINS
from app_server.engine.model.catalogue import UNKNOWN, find_model
from app_server.engine.model.messages_join import Message
from app_server.engine.model.messages_options import headers_of
from app_server.engine.model.messages_reader import MessagesDecoder
from app_server.engine.model.messages_writer import NO_OUTPUT, NOT_TAKEN, UNSEEN, MessagesWriter
from app_server.engine.model.prompt import (
    FreeformTool,
    FunctionTool,
    ModelEvent,
    OutputItemDone,
    Prompt,
    RequestSettings,
    WebSearchTool,
)
from app_server.engine.model.quirks import Quirks
from app_server_protocol.encoding import Json
from app_server_protocol.item_origin import FAILED
from app_server_protocol.responses import (
    CustomToolCall,
    CustomToolCallOutput,
    FunctionCall,
    InputImage,
    MessageItem,
    OutputText,
    ReasoningResponseItem,
    ResponseItem,
    SummaryText,
)
from app_server_protocol.values import replace
from tests.engine.model.histories import CLAUDE, PICTURE, WORDS, histories, origin, output, user
from tests.support.claude import Refused, check, events, plain, stream, text, thinking, tool_use

PLAIN = Quirks()
SHELL = FunctionTool("shell", "Runs a command.", {"type": "object", "properties": {}, "$defs": {}})
SETTINGS = RequestSettings(model=CLAUDE, row=find_model(CLAUDE), conversation_id="c")


def settings(model: str, **more: Json) -> RequestSettings:
    return replace(SETTINGS, model=model, row=find_model(model), **more)


def said(words: str, answer: str = "1") -> MessageItem:
    return MessageItem(role="assistant", content=(OutputText(text=words),), origin=origin(answer))


def thought(words: str, answer: str = "1", **more: Json) -> ReasoningResponseItem:
    return ReasoningResponseItem(summary=(SummaryText(text=words),), origin=origin(answer, **more))


def call(id: str, answer: str = "1", arguments: str = "{}") -> FunctionCall:
    return FunctionCall(name="shell", arguments=arguments, call_id=id, origin=origin(answer))


def body(
    *items: ResponseItem,
    settings: RequestSettings = SETTINGS,
    quirks: Quirks = PLAIN,
    writer: MessagesWriter | None = None,
    tools: Sequence[object] = (SHELL,),
    ttl: str | None = None,
    schema: Json = None,
) -> Json:
    prompt = Prompt(instructions="Be useful.", input=items, tools=tools, output_schema=schema)  # type: ignore[arg-type]
    written = (writer or MessagesWriter()).body(prompt, settings, quirks, "anthropic", ttl)
    return json.loads(written)


def messages(*items: ResponseItem, **more: Json) -> list[Json]:
    return plain(body(*items, **more)["messages"])  # type: ignore[no-any-return]


def test_a_first_request() -> None:
    sent = body(user("Be brief.", "developer"), user("hi"), tools=(SHELL, WebSearchTool()))
    assert sent == {
        "model": CLAUDE,
        "max_tokens": 128_000,
        "stream": True,
        "system": [
            {"type": "text", "text": "Be useful.\n\nBe brief.", "cache_control": {"type": "ephemeral"}}
        ],
        "tools": [
            {
                "name": "shell",
                "description": "Runs a command.",
                "input_schema": {"type": "object", "properties": {}},
            }
        ],
        "messages": [
            {
                "role": "user",
                "content": [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}],
            }
        ],
        "thinking": {"type": "adaptive", "display": "summarized"},
    }


def test_an_answer_is_one_message_and_its_outputs_begin_the_next_one() -> None:
    items = (
        *(user("hi"), thought("Hm.", signature="s"), said("I look.")),
        *(call("a"), output("a", "A"), call("b", arguments='{"x": 1.0}'), output("b", "B")),
        *(user("Faster."), user("In English.", "developer")),
    )
    asked, answer, rest = messages(*items)
    assert asked["content"] == [text("hi")]
    assert answer == {
        "role": "assistant",
        "content": [
            thinking("Hm.", "s"),
            text("I look."),
            tool_use("shell", {}, "a"),
            tool_use("shell", {"x": 1.0}, "b"),
        ],
    }
    assert rest["content"] == [
        {"type": "tool_result", "tool_use_id": "a", "content": "A"},
        {"type": "tool_result", "tool_use_id": "b", "content": "B"},
        text("Faster."),
        text("<instructions>\nIn English.\n</instructions>"),
    ]


def test_what_a_tool_hands_over_besides_its_output_divides_no_answer() -> None:
    """An image of a tool is stored as a message of the user, between two calls of one answer."""
    picture = MessageItem(role="user", content=(InputImage(image_url=PICTURE),))
    items = (user("hi"), thought("Hm.", "1-m", signature="s"), call("a", "1-m"), output("a"), picture)
    _, answer, rest = messages(*items, call("b", "1-m"), output("b"))
    assert [block["type"] for block in answer["content"]] == ["thinking", "tool_use", "tool_use"]
    assert [block["type"] for block in rest["content"]] == ["tool_result", "tool_result", "image"]


def test_thoughts_go_back_to_the_provider_that_made_them_only() -> None:
    redacted = ReasoningResponseItem(origin=origin("1", redacted="secret"))
    unsigned = thought("Hm.", signature="")
    answer = messages(user("hi"), redacted, unsigned, thought("", signature="s"), said("Hello"))[1]
    assert answer["content"] == [
        {"type": "redacted_thinking", "data": "secret"},
        thinking("Hm."),
        thinking("", "s"),
        text("Hello"),
    ]
    others = (
        thought("Hm.", provider="gateway", signature="s"),
        thought("Hm.", wire="chat", signature="s"),
        ReasoningResponseItem(summary=(SummaryText(text="Hm."),), encrypted_content="x"),
    )
    for other in others:
        assert messages(user("hi"), other, said("Hello"))[1]["content"] == [text("Hello")]


@pytest.mark.parametrize("blank", ["", " \n"])
def test_nothing_blank_is_sent(blank: str) -> None:
    items = (user("hi"), thought("Hm.", signature="s"), said(blank), user(blank), user("again"))
    assert messages(*items) == [{"role": "user", "content": [text("hi"), text("again")]}]
    assert "system" not in json.loads(
        MessagesWriter().body(
            Prompt(instructions=blank, input=(user("hi"),)), SETTINGS, Quirks(), "anthropic"
        )
    )


def test_an_answer_that_broke_off_in_a_thought_ends_with_its_words() -> None:
    answer = messages(user("hi"), said("I look."), thought("Hm.", signature="s"), user("go on"))[1]
    assert answer["content"] == [text("I look.")]


def test_a_history_that_an_answer_begins_has_words_of_the_user_before_it() -> None:
    assert messages(said("Hello"), user("hi"))[0]["content"] == [text(BEGINS)]
    assert messages()[0]["content"] == [text(BEGINS)]


def test_failed_tools_are_told_as_such() -> None:
    items = (user("hi"), call("a"), output("a", "no", **{FAILED: True}), call("b"))
    results = messages(*items, output("b", " ", **{FAILED: True}))[2]["content"]
    assert [(each["content"], each["is_error"]) for each in results] == [("no", True), (NO_OUTPUT, True)]


def test_calls_of_other_apis_become_functions_with_ids_that_the_api_takes() -> None:
    patch = CustomToolCall(call_id="call|1", name="apply_patch", input="*** Begin Patch")
    long = FunctionCall(name="a.b", arguments="{broken", call_id="x" * 90)
    items = (user("hi"), patch, CustomToolCallOutput(call_id="call|1", output="ok"), long)
    _, first, _, second, _ = messages(*items, output("x" * 90))
    assert first["content"] == [tool_use("apply_patch", {"input": "*** Begin Patch"}, "call_1")]
    written = second["content"][0]
    assert (written["name"], written["input"], len(written["id"])) == ("a_b", {}, 64)


def test_images_are_blocks_also_in_outputs() -> None:
    seen = MessageItem(
        role="user",
        content=(
            InputImage(image_url=PICTURE),
            InputImage(image_url="https://example.com/a.png"),
            InputImage(image_url="data:image/bmp;base64,AAAA"),
        ),
    )
    asked, _, rest = messages(seen, call("a"), output("a", "look", PICTURE))
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    linked = {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}}
    assert asked["content"] == [image, linked, text(NOT_TAKEN)]
    assert rest["content"][0]["content"] == [text("look"), image]
    blind = replace(SETTINGS, row=replace(SETTINGS.row, input_modalities=("text",)))
    assert messages(seen, settings=blind)[0]["content"] == [text(UNSEEN)] * 3


def test_marks_of_the_cache_are_on_the_system_and_on_the_ends_of_this_request_and_the_last() -> None:
    items = (user("hi"), said("Hello"), user("a"), call("x", "2"), output("x"), call("y", "3"), output("y"))
    sent = body(*items, ttl="1h")
    marked = [
        (n, at)
        for n, message in enumerate(sent["messages"])
        for at, block in enumerate(message["content"])
        if block.get("cache_control") == {"type": "ephemeral", "ttl": "1h"}
    ]
    assert marked == [(4, 0), (6, 0)]
    assert "cache_control" in sent["system"][0]
    assert "cache_control" not in json.dumps(body(*items, quirks=Quirks(omit=("cache_control",))))


@pytest.mark.parametrize(
    ("model", "effort", "thinks", "output"),
    [
        ("claude-opus-5-5", None, {"type": "adaptive", "display": "summarized"}, None),
        ("claude-opus-5-5", "none", {"type": "adaptive", "display": "summarized"}, "low"),
        ("claude-opus-5-5", "ultra", {"type": "adaptive", "display": "summarized"}, "max"),
        ("claude-opus-5-5", "unheard-of", {"type": "adaptive", "display": "summarized"}, "max"),
        ("claude-sonnet-5-5", "minimal", {"type": "adaptive", "display": "summarized"}, "low"),
        ("claude-sonnet-5-5", "none", {"type": "disabled"}, None),
        ("claude-opus-4-6", "xhigh", {"type": "adaptive", "display": "summarized"}, "high"),
        ("claude-sonnet-4-5", None, None, None),
        ("claude-sonnet-4-5", "none", None, None),
        ("claude-sonnet-4-5", "low", {"type": "enabled", "budget_tokens": 4096}, None),
        ("claude-sonnet-4-5", "medium", {"type": "enabled", "budget_tokens": 10240}, None),
        ("claude-sonnet-4-5", "xhigh", {"type": "enabled", "budget_tokens": 16384}, None),
        ("kimi-k2", None, None, None),
        ("no-such-model", "high", None, "high"),
    ],
)
def test_efforts_are_said_as_the_model_takes_them(
    model: str, effort: str | None, thinks: Json, output: str | None
) -> None:
    asked = settings(model, effort=effort)
    sent = body(user("hi"), settings=asked)
    assert sent.get("thinking") == thinks
    assert sent.get("output_config") == (None if output is None else {"effort": output})
    enabled = thinks is not None and thinks["type"] == "enabled"
    assert ("anthropic-beta" in headers_of(asked)) == enabled


def test_a_budget_of_thoughts_is_not_given_in_the_middle_of_an_answer_that_has_none() -> None:
    """Claude refuses `thinking` if the answer that waits for its outputs began without a thought."""
    asked = settings("claude-sonnet-4-5", effort="low")
    started = user("hi"), FunctionCall(name="shell", arguments="{}", call_id="a"), output("a")
    assert "thinking" not in body(*started, settings=asked)
    assert "thinking" in body(*started, said("Done", "2"), user("more"), settings=asked)
    thoughtful = user("hi"), thought("Hm.", signature="s"), call("a"), output("a")
    assert "thinking" in body(*thoughtful, settings=asked)


def test_the_longest_answer_is_the_models_as_far_as_the_window_has_room() -> None:
    assert body(user("hi"), settings=settings("claude-sonnet-4-6"))["max_tokens"] == 64_000
    assert body(user("hi"), settings=replace(SETTINGS, row=UNKNOWN))["max_tokens"] == 32_000
    small = replace(SETTINGS, row=replace(SETTINGS.row, context_window=10_000))
    assert 6000 < body(user("x" * 9000), settings=small)["max_tokens"] < 7000
    assert body(user("x" * 90_000), settings=small)["max_tokens"] == 1024
    picture = MessageItem(role="user", content=(InputImage(image_url=f"{PICTURE[:-4]}{'A' * 90_000}"),))
    assert body(picture, settings=small)["max_tokens"] > 7000, "an image counts by its pixels"
    assert body(user("hi"), settings=replace(SETTINGS, max_output_tokens=500))["max_tokens"] == 500


def test_an_output_schema_and_a_tool_of_free_text() -> None:
    patch = FreeformTool("apply_patch", "Patches.", {})
    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    sent = body(user("hi"), tools=(patch,), schema=schema, settings=replace(SETTINGS, effort="high"))
    expected = {"effort": "high", "format": {"type": "json_schema", "schema": schema}}
    assert sent["output_config"] == expected
    assert sent["tools"][0]["input_schema"]["required"] == ["input"]
    assert "tools" not in body(user("hi"), tools=())


def test_a_request_without_tools_keeps_those_of_the_one_before() -> None:
    """A compaction sends such a request: the provider refuses a history with calls if no tool is defined."""
    items = (user("hi"), call("a"), output("a"), user("Sum up."))
    writer = MessagesWriter()
    tools = body(*items[:3], writer=writer)["tools"]
    assert body(*items, writer=writer, tools=())["tools"] == tools
    assert body(*items, tools=())["tools"] == [{"name": "shell", "input_schema": {"type": "object"}}]
    check(body(*items, tools=()))


def test_what_is_refused_is_left_out() -> None:
    sent = body(
        user("hi"),
        settings=replace(SETTINGS, effort="high"),
        quirks=Quirks(omit=("thinking", "output_config")),
    )
    assert not sent.keys() & {"thinking", "output_config"}


# --- properties

ARGUMENTS = st.dictionaries(
    WORDS, st.integers() | WORDS | st.lists(st.floats(allow_nan=False, allow_infinity=False)), max_size=3
)
BLOCKS = st.one_of(
    WORDS.map(text),
    st.builds(thinking, WORDS, st.text("abc", min_size=1, max_size=3)),
    st.just({"type": "redacted_thinking", "data": "xyz"}),
)


@given(st.lists(BLOCKS, max_size=5), st.lists(ARGUMENTS, max_size=3), WORDS)
def test_an_answer_goes_back_as_it_came_byte_for_byte(
    blocks: list[Json], arguments: list[dict[str, Json]], last: str
) -> None:
    ours = [
        *blocks,
        text(f"{last}."),
        *(tool_use("shell", each, f"toolu_{n}") for n, each in enumerate(arguments)),
    ]
    decoder = MessagesDecoder(origin("1-"))
    out: list[ModelEvent] = []
    for frame in SseDecoder().feed(stream(events(*ours))):
        decoder.decode(frame, out)
    items: list[ResponseItem] = []
    for event in out:
        if isinstance(event, OutputItemDone):
            items.append(event.item)
            if isinstance(event.item, FunctionCall):
                items.append(output(event.item.call_id))
    prompt = Prompt(instructions="x", input=[user("hi"), *items, user("more")], tools=(SHELL,))
    sent = MessagesWriter().body(prompt, SETTINGS, Quirks(), "anthropic")
    expected = [block for block in ours if block["type"] != "text" or block["text"].strip()]
    assert json.loads(sent)["messages"][1]["content"] == expected
    for each in arguments:
        assert b'"input":%b}' % json.dumps(each).encode() in sent


@given(histories())
def test_any_history_is_one_that_the_provider_takes(items: list[ResponseItem]) -> None:
    unsigned = any(block["type"] == "thinking" for each in messages(*items) for block in each["content"])
    forgotten = [item for item in items if not isinstance(item, ReasoningResponseItem)]
    check(body(*forgotten, user("Go on.")))
    refused = pytest.raises(Refused, match="bound to a different conversation")
    with refused if unsigned else nullcontext():
        check(body(*items, user("Go on.")))


@given(histories(whole=True), histories(whole=True))
def test_a_request_begins_as_the_one_before(items: list[ResponseItem], more: list[ResponseItem]) -> None:
    first = [user("hi"), *items, user("Go on.")]
    answer: list[ResponseItem] = [said("Well.", "99-m"), call("q", "99-m"), output("q")]
    writer = MessagesWriter()
    before = messages(*first, writer=writer)
    after = messages(*first, *answer, *more, user("More."), writer=writer)
    assert after[: len(before)] == before
    assert after == messages(*first, *answer, *more, user("More.")), "also by a writer that begins anew"


@given(histories(), st.lists(st.integers(0, 30), max_size=6), st.booleans())
def test_a_request_that_repeats_the_last_one_is_as_if_it_were_written_alone(
    items: list[ResponseItem], ends: list[int], grows: bool
) -> None:
    """This holds for any items added or removed since the last request, also outputs of calls of an earlier answer."""
    writer = MessagesWriter()
    for end in [*(sorted(ends) if grows else ends), len(items)]:
        assert body(*items[:end], writer=writer) == body(*items[:end])


def test_only_what_is_new_is_written_in_a_long_conversation(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request costs only what it adds: the messages before the last ones are not read again."""
    items: list[ResponseItem] = [user("Be brief.", "developer"), user("hi")]
    for n in range(50):
        items += [thought("Hm.", str(n)), call(f"c{n}", str(n)), output(f"c{n}")]
    writer = MessagesWriter()
    body(*items, writer=writer)
    joined: list[str] = []
    join = Message.joined

    def noted(each: Message, *mark: bytes) -> bytes:
        joined.append(each.role)
        return join(each, *mark)

    monkeypatch.setattr(Message, "joined", noted)
    for n in range(50, 60):
        items += [call(f"c{n}", str(n)), output(f"c{n}")]
        whole = body(*items, writer=writer)
        assert len(joined) <= 8
        joined.clear()
    assert whole == body(*items)
    late = output("c3", "late")
    assert body(*items, late, writer=writer) == body(*items, late)
