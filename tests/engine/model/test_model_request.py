import json
from collections.abc import Sequence

import pytest

from app_server.engine.config.quirk_settings import ThoughtsBack
from app_server.engine.model.catalogue import find_model
from app_server.engine.model.chat_writer import ChatWriter
from app_server.engine.model.item_cache import ItemBytes, plain_output
from app_server.engine.model.prompt import (
    FreeformTool,
    FunctionTool,
    LocalShellTool,
    Prompt,
    RequestSettings,
    ToolSpec,
    WebSearchTool,
)
from app_server.engine.model.quirks import Quirks
from app_server.engine.model.responses_writer import ResponsesWriter
from app_server_protocol.encoding import Json
from app_server_protocol.policy import ReasoningEffort, ReasoningSummary, Verbosity
from app_server_protocol.responses import (
    CustomToolCall,
    CustomToolCallOutput,
    FunctionCall,
    FunctionCallOutput,
    FunctionCallOutputPayload,
    GhostCommit,
    GhostSnapshot,
    InputImage,
    InputText,
    LocalShellCall,
    LocalShellExec,
    LocalShellStatus,
    MessageItem,
    OtherItem,
    OutputText,
    ReasoningResponseItem,
    ReasoningText,
    ResponseItem,
    SearchAction,
    WebSearchCall,
)
from app_server_protocol.values import replace

PICTURE = "data:image/png;base64,AAAA"
SHELL = FunctionTool(name="shell", description="Runs.", parameters={"type": "object"})
PATCH = FreeformTool(name="apply_patch", description="Patches.", format={"type": "grammar"})
STORED_OUTPUT = '{"output":"hi\\n","metadata":{"exit_code":0,"duration_seconds":0.1}}'
PLAIN_OUTPUT = "Exit code: 0\nWall time: 0.1 seconds\nOutput:\nhi\n"


def user(text: str) -> MessageItem:
    return MessageItem(role="user", content=(InputText(text=text),))


def said(text: str, item_id: str | None = None) -> MessageItem:
    return MessageItem(role="assistant", content=(OutputText(text=text),), id=item_id)


def call(call_id: str, name: str = "shell", arguments: str = "{}") -> FunctionCall:
    return FunctionCall(name=name, arguments=arguments, call_id=call_id)


def output(call_id: str, text: str = "done") -> FunctionCallOutput:
    return FunctionCallOutput(call_id=call_id, output=FunctionCallOutputPayload(content=text))


def thought(text: str) -> ReasoningResponseItem:
    return ReasoningResponseItem(content=(ReasoningText(text=text),), id="rs")


def settings(model: str = "mock-model", **fields: Json) -> RequestSettings:
    row = find_model(model, plain=True)
    return RequestSettings(model=model, row=row, conversation_id="c-1", **fields)


def prompt(*items: ResponseItem, tools: Sequence[ToolSpec] = (), **fields: Json) -> Prompt:
    return Prompt(instructions="Be useful.", input=items, tools=tools, **fields)


def responses(of: Prompt, how: RequestSettings | None = None, *, stored: bool = False) -> Json:
    how = how or settings()
    return json.loads(ResponsesWriter().body(of, how, Quirks(store_items=stored)))


def chat(of: Prompt, *, asks_usage: bool = False) -> Json:
    return json.loads(ChatWriter().body(of, settings(live_chat=asks_usage), Quirks(), "mine"))


def test_a_plain_request() -> None:
    assert responses(prompt(user("hi"), tools=[SHELL], parallel_tool_calls=True)) == {
        "model": "mock-model",
        "instructions": "Be useful.",
        "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}],
        "tools": [
            {
                "type": "function",
                "name": "shell",
                "description": "Runs.",
                "strict": False,
                "parameters": {"type": "object", "properties": {}},
            }
        ],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "reasoning": None,
        "store": False,
        "stream": True,
        "include": [],
        "prompt_cache_key": "c-1",
    }


def test_an_empty_history_is_a_request_too() -> None:
    assert responses(prompt())["input"] == []
    assert chat(prompt())["messages"] == [{"role": "system", "content": "Be useful."}]


def test_reasoning_models_are_asked_for_what_they_can() -> None:
    body = responses(prompt(), settings("gpt-5"))
    assert body["reasoning"] == {"summary": "auto"}
    assert body["include"] == ["reasoning.encrypted_content"]
    assert "text" not in body
    how = settings(
        "gpt-5", effort=ReasoningEffort.LOW, summary=ReasoningSummary.NONE, verbosity=Verbosity.HIGH
    )
    body = responses(prompt(), how)
    assert body["reasoning"] == {"effort": "low"}
    assert body["text"] == {"verbosity": "high"}


@pytest.mark.parametrize(
    ("summary", "asked"), [("auto", {}), ("none", {}), ("detailed", {"summary": "detailed"})]
)
def test_an_unknown_model_is_asked_for_what_was_chosen(summary: str, asked: dict[str, Json]) -> None:
    how = settings(
        "unknown",
        effort=ReasoningEffort.LOW,
        summary=ReasoningSummary(summary),
        sends_chosen_effort=True,
    )
    assert responses(prompt(), how)["reasoning"] == {"effort": "low", **asked}


def test_defaults_of_a_family() -> None:
    body = responses(prompt(), settings("gpt-5.1"))
    assert body["reasoning"] == {"effort": "medium", "summary": "auto"}
    assert body["text"] == {"verbosity": "low"}


def test_settings_that_a_model_does_not_know_are_left_out() -> None:
    how = settings("gpt-4.1", effort=ReasoningEffort.HIGH, verbosity=Verbosity.LOW)
    body = responses(prompt(), how)
    assert body["reasoning"] is None
    assert body["include"] == []
    assert "text" not in body
    assert "text" not in responses(prompt(), settings("gpt-5-codex", verbosity=Verbosity.LOW))


def test_the_user_may_know_better_whether_a_model_reasons() -> None:
    assert responses(prompt(), settings(supports_reasoning_summaries=True))["reasoning"] == {
        "summary": "auto"
    }
    assert responses(prompt(), settings("gpt-5", supports_reasoning_summaries=False))["reasoning"] is None


def test_a_schema_for_the_answer() -> None:
    schema = {"type": "object"}
    text = responses(prompt(output_schema=schema))["text"]
    assert text == {
        "format": {"type": "json_schema", "strict": True, "schema": schema, "name": "codex_output_schema"}
    }
    body = chat(prompt(output_schema=schema))
    assert body["response_format"]["json_schema"]["schema"] == schema


def test_all_kinds_of_tools() -> None:
    tools: list[ToolSpec] = [LocalShellTool(), PATCH, WebSearchTool(), SHELL]
    kinds = [tool["type"] for tool in responses(prompt(tools=tools))["tools"]]
    assert kinds == ["local_shell", "custom", "web_search", "function"]
    searchless = ResponsesWriter().body(prompt(tools=tools), settings(), Quirks(web_search=False))
    kinds = [tool["type"] for tool in json.loads(searchless)["tools"]]
    assert kinds == ["local_shell", "custom", "function"]
    assert responses(prompt(tools=[PATCH]))["tools"] == [
        {"type": "custom", "name": "apply_patch", "description": "Patches.", "format": {"type": "grammar"}}
    ]
    assert [tool["function"]["name"] for tool in chat(prompt(tools=tools))["tools"]] == [
        "apply_patch",
        "shell",
    ]
    assert "tools" not in chat(prompt())


def test_internal_items_are_not_sent_to_the_model() -> None:
    items: list[ResponseItem] = [
        user("a"),
        GhostSnapshot(ghost_commit=GhostCommit(id="x")),
        OtherItem(type="odd"),
        user("b"),
    ]
    assert [item["content"][0]["text"] for item in responses(prompt(*items))["input"]] == ["a", "b"]
    assert [message["content"] for message in chat(prompt(*items))["messages"][1:]] == ["a\n\nb"]


def test_item_ids_go_back_only_to_who_keeps_them() -> None:
    items: list[ResponseItem] = [thought("t"), said("one", "m-1"), call("c1"), output("c1")]
    assert all("id" not in item for item in responses(prompt(*items))["input"])
    body = responses(prompt(*items), stored=True)
    assert body["store"] is True
    assert [item.get("id") for item in body["input"]] == ["rs", "m-1", None, None]


def test_encrypted_reasoning_goes_back_unchanged() -> None:
    item = ReasoningResponseItem(encrypted_content="gAAA+/=\n", id="rs")
    [sent] = responses(prompt(item))["input"]
    assert sent["encrypted_content"] == "gAAA+/=\n"
    assert sent["summary"] == []


def test_text_that_utf8_cannot_carry_is_sent_escaped() -> None:
    body = ResponsesWriter().body(prompt(user("a\ud800b")), settings(), Quirks())
    assert json.loads(body)["input"][0]["content"][0]["text"] == "a\ud800b"
    assert chat(prompt(user("a\ud800b")))["messages"][1]["content"]


def test_an_item_is_written_once_and_only_while_it_is_sent() -> None:
    cache, written = ItemBytes(), list[ResponseItem]()

    def write(item: ResponseItem) -> bytes:
        written.append(item)
        return item.to_json()

    items: list[ResponseItem] = [user("a"), user("b")]
    first = cache.of(items, "form", write)
    assert cache.of([*items, user("c")], "form", write)[:2] == first
    assert len(written) == 3
    cache.of(items[:1], "form", write)
    cache.of(items, "form", write)
    assert written[3:] == [items[1]]
    cache.of(items, "other form", write)
    assert len(written) == 6


def test_what_stands_around_the_items_is_written_anew_when_anything_of_it_changes() -> None:
    how, quirks = settings("gpt-5"), Quirks()
    responses_writer, chat_writer = ResponsesWriter(), ChatWriter()
    of = prompt(user("a"), tools=[SHELL])
    bodies = [
        of,
        replace(of, instructions="others"),
        replace(of, tools=[SHELL, PATCH]),
        replace(of, tools=[PATCH, SHELL]),
        replace(of, output_schema={"const": 1}),
        replace(of, output_schema={"const": True}),
        replace(of, parallel_tool_calls=not of.parallel_tool_calls),
    ]
    for one in bodies:
        fresh = ResponsesWriter().body(one, how, quirks)
        assert responses_writer.body(one, how, quirks) == fresh
        assert responses_writer.body(one, how, quirks) == fresh
        for asks in (True, False):
            asked = replace(how, live_chat=asks)
            fresh = ChatWriter().body(one, asked, quirks, "mine")
            assert chat_writer.body(one, asked, quirks, "mine") == fresh
    other = replace(how, conversation_id="another")
    fresh = ResponsesWriter().body(of, other, quirks)
    assert responses_writer.body(of, other, quirks) == fresh


def test_command_outputs_are_plain_beside_a_freeform_patch_tool() -> None:
    items: list[ResponseItem] = [
        call("c1"),
        output("c1", STORED_OUTPUT),
        call("c2", "update_plan"),
        output("c2", STORED_OUTPUT),
        CustomToolCall(call_id="c3", name="apply_patch", input="p"),
        CustomToolCallOutput(call_id="c3", output=STORED_OUTPUT),
        call("c4"),
        output("c4", "aborted by user"),
    ]
    writer = ResponsesWriter()

    def outputs(tools: Sequence[ToolSpec]) -> list[str]:
        body = writer.body(prompt(*items, tools=tools), settings("gpt-5-codex"), Quirks())
        return [item["output"] for item in json.loads(body)["input"] if "output" in item]

    assert outputs([SHELL]) == [STORED_OUTPUT] * 3 + ["aborted by user"]
    assert outputs([PATCH]) == [PLAIN_OUTPUT, STORED_OUTPUT, PLAIN_OUTPUT, "aborted by user"]
    assert outputs([SHELL]) == [STORED_OUTPUT] * 3 + ["aborted by user"]


def test_a_local_shell_call_counts_as_a_command() -> None:
    action = LocalShellExec(command=("echo",))
    items: list[ResponseItem] = [
        LocalShellCall(call_id="c1", status=LocalShellStatus.COMPLETED, action=action),
        output("c1", STORED_OUTPUT),
    ]
    assert responses(prompt(*items, tools=[PATCH]))["input"][1]["output"] == PLAIN_OUTPUT


def test_plain_outputs() -> None:
    stored = (
        '{"output":"Total output lines: 400\\n\\n1\\n2","metadata":{"exit_code":3,"duration_seconds":12.0}}'
    )
    assert (
        plain_output(stored) == "Exit code: 3\nWall time: 12 seconds\nTotal output lines: 400\nOutput:\n1\n2"
    )
    for other in (
        "text",
        '{"output":',
        '{"output":1,"metadata":{"exit_code":0,"duration_seconds":0}}',
        '{"output":""}',
    ):
        assert plain_output(other) == other


def test_chat_messages() -> None:
    picture = MessageItem(role="user", content=(InputText(text="look"), InputImage(image_url=PICTURE)))
    seen = FunctionCallOutputPayload(content="x", content_items=(InputImage(image_url=PICTURE),))
    image = {"type": "image_url", "image_url": {"url": PICTURE}}
    items: list[ResponseItem] = [
        MessageItem(role="developer", content=(InputText(text="mind"),)),
        picture,
        said("Let me"),
        call("c1", arguments='{"a":1}'),
        output("c1"),
        call("c2"),
        FunctionCallOutput(call_id="c2", output=seen),
        WebSearchCall(status="completed", action=SearchAction(query="q")),
    ]
    assert chat(prompt(*items))["messages"] == [
        {"role": "system", "content": "Be useful.\n\nmind"},
        {"role": "user", "content": [{"type": "text", "text": "look"}, image]},
        {
            "role": "assistant",
            "content": "Let me",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "shell", "arguments": '{"a":1}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "done"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "c2", "type": "function", "function": {"name": "shell", "arguments": "{}"}}
            ],
        },
        {"role": "tool", "tool_call_id": "c2", "content": "x\n(the picture follows)"},
        {"role": "user", "content": [image]},
    ]


def test_calls_of_other_apis_are_sent_as_functions() -> None:
    action = LocalShellExec(command=("echo", "x"))
    items: list[ResponseItem] = [
        LocalShellCall(call_id=None, id="l1", status=LocalShellStatus.COMPLETED, action=action),
        output("l1"),
        CustomToolCall(call_id="c1", name="apply_patch", input="*** Begin"),
        CustomToolCallOutput(call_id="c1", output="ok"),
    ]
    _, _, local, _, custom, done = chat(prompt(*items))["messages"]
    function = local["tool_calls"][0]["function"]
    assert local["tool_calls"][0]["id"] == "l1"
    assert json.loads(function["arguments"])["command"] == ["echo", "x"]
    assert json.loads(custom["tool_calls"][0]["function"]["arguments"]) == {"input": "*** Begin"}
    assert done == {"role": "tool", "tool_call_id": "c1", "content": "ok"}


@pytest.mark.parametrize(
    ("back", "then", "later"),
    [
        ("always", {"old", "new", "late"}, {"old", "new", "late"}),
        ("turn", {"new", "late"}, set()),
        ("never", set(), set()),
    ],
)
def test_reasoning_goes_back_as_the_provider_wants_it(
    back: ThoughtsBack, then: set[str], later: set[str]
) -> None:
    items: list[ResponseItem] = [
        user("1"),
        thought("old"),
        said("a"),
        user("2"),
        thought("new"),
        call("c1"),
        output("c1"),
        thought("late"),
        said("b"),
    ]
    writer, quirks = ChatWriter(), Quirks(thoughts_back=back)

    def noted(*more: ResponseItem) -> dict[str, Json]:
        body = json.loads(writer.body(prompt(*items, *more), settings(), quirks, "mine"))
        return {each["reasoning"]: each for each in body["messages"] if "reasoning" in each}

    found = noted()
    assert set(found) == then
    if "new" in found:
        assert found["new"]["tool_calls"][0]["id"] == "c1"
        assert found["late"]["content"] == "b"
    assert set(noted(user("3"))) == later


def test_a_chat_asks_for_token_counts_where_it_is_told_to() -> None:
    assert "stream_options" not in chat(prompt())
    body = chat(prompt(), asks_usage=True)
    assert body["stream_options"] == {"include_usage": True}
    assert body["stream"] is True
