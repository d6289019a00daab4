"""Input of the model: history, however it was recorded, texts, and images that the user attaches."""

import json
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.engine.context import text_for_model
from app_server.engine.context.environment_context import (
    environment_change,
    environment_message,
    opening_messages,
    project_instructions,
    user_text,
)
from app_server.engine.context.history import (
    NO_SUMMARY,
    ConversationHistory,
    build_compacted_history,
    collect_user_messages,
    message_text,
    normalise,
    summary_message,
    with_marked_summary,
)
from app_server.engine.context.sizes import MOST_KEPT_TOKENS
from app_server.engine.session.user_input import image_data_url
from app_server.engine.support.images import MAX_IMAGE_BYTES, ImageUnreadable
from app_server_protocol.engine.thread_settings import ThreadSettings
from app_server_protocol.policy import AskForApproval, DangerFullAccess, ReadOnly, WorkspaceWrite
from app_server_protocol.responses import (
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
    OutputText,
    ResponseItem,
    aborted_output,
    call_key,
)
from app_server_protocol.rollout import is_injected
from app_server_protocol.values import replace
from tests.support.pictures import PICTURES, PNG, picture_url

HERE = ThreadSettings(cwd="/w", approval_policy=AskForApproval.NEVER, sandbox_policy=ReadOnly())

ENVIRONMENT = environment_message(HERE, "bash")


# --- environment
def test_the_environment_in_full() -> None:
    assert message_text(ENVIRONMENT).splitlines() == [
        "<environment_context>",
        "  <cwd>/w</cwd>",
        "  <approval_policy>never</approval_policy>",
        "  <sandbox_mode>read-only</sandbox_mode>",
        "  <network_access>restricted</network_access>",
        "  <shell>bash</shell>",
        "</environment_context>",
    ]


def test_writable_roots_are_named() -> None:
    policy = WorkspaceWrite(writable_roots=("/a", "/b"), network_access=True)
    text = message_text(environment_message(replace(HERE, sandbox_policy=policy), None))
    assert "<network_access>enabled</network_access>" in text
    assert text.index("<root>/a</root>") < text.index("<root>/b</root>")


def test_only_what_changed_is_told() -> None:
    moved = replace(HERE, cwd="/x", sandbox_policy=DangerFullAccess(), model="of no interest")
    changed = environment_change(HERE, moved)
    assert changed is not None
    assert message_text(changed).splitlines() == [
        "<environment_context>",
        "  <cwd>/x</cwd>",
        "  <sandbox_mode>danger-full-access</sandbox_mode>",
        "  <network_access>enabled</network_access>",
        "</environment_context>",
    ]
    assert environment_change(HERE, replace(HERE, model="of no interest")) is None


# --- opening
def test_the_first_messages_of_a_conversation_are_in_order() -> None:
    opening = opening_messages(HERE, "bash", developer="be brief", agents="use tabs")
    assert [item.role for item in opening if isinstance(item, MessageItem)] == ["developer", "user", "user"]
    texts = [message_text(item) for item in opening if isinstance(item, MessageItem)]
    assert "use tabs" in texts[1]
    assert texts[2] == message_text(ENVIRONMENT)
    assert [is_injected(text) for text in texts] == [False, True, True]


def test_an_opening_without_anything_to_say_is_the_environment() -> None:
    assert opening_messages(HERE, None, developer=None, agents=None) == [environment_message(HERE, None)]


# --- messages that the server writes as the user
@pytest.mark.parametrize(
    "text",
    [
        "<environment_context>\n  <cwd>/w</cwd>\n</environment_context>",
        " \n# AGENTS.md instructions for /w\n",
        "<user_instructions>be brief</user_instructions>",
        "<user_shell_command>\n<command>\nls\n</command>\n</user_shell_command>",
        "<skill>\n<name>x</name>\n</skill>",
        "<mention>\n<name>x</name>\n</mention>",
        '<codex_internal_context source="goal">\ngo on\n</codex_internal_context>',
    ],
)
def test_what_the_server_wrote_is_no_word_of_the_user(text: str) -> None:
    assert is_injected(text)
    said = [user_text(text), user_text(f"Look at this: {text}")]
    assert collect_user_messages(said) == [f"Look at this: {text}"]


# --- compaction
def test_a_compacted_history_keeps_the_users_words_and_the_summary() -> None:
    said = [
        ENVIRONMENT,
        project_instructions("/w", "use tabs"),
        user_text("one"),
        MessageItem(role="assistant", content=(OutputText(text="reply"),)),
        user_text("two"),
    ]
    words = collect_user_messages(said)
    assert words == ["one", "two"]
    rebuilt = build_compacted_history([ENVIRONMENT], words, "summary")
    assert rebuilt == [ENVIRONMENT, user_text("one"), user_text("two"), summary_message("summary")]


def test_without_a_summary_it_says_so() -> None:
    assert build_compacted_history([], [], "") == [summary_message(NO_SUMMARY)]


def test_an_earlier_summary_is_not_kept_as_the_users_words() -> None:
    first = build_compacted_history([ENVIRONMENT], ["do A"], "SUMMARY ONE")
    words = collect_user_messages([*first, user_text("SUMMARY ONE"), user_text("do B")])
    assert words == ["do A", "SUMMARY ONE", "do B"], "what the user says is the user's, whatever it says"
    second = build_compacted_history([ENVIRONMENT], words, "SUMMARY TWO")
    texts = [message_text(item) for item in second if isinstance(item, MessageItem)]
    assert texts[1:] == ["do A", "SUMMARY ONE", "do B", "SUMMARY TWO"]


def test_on_the_wire_a_summary_is_a_message() -> None:
    assert summary_message("s").to_json() == user_text("s").to_json()


def test_a_summary_that_another_program_stored_is_known_by_its_text() -> None:
    stored = [ENVIRONMENT, user_text("do A"), user_text("SUMMARY")]
    marked = with_marked_summary(stored, "SUMMARY")
    assert [item.to_json() for item in marked] == [item.to_json() for item in stored]
    assert collect_user_messages(marked) == ["do A"]


def test_the_newest_words_are_kept_and_the_oldest_cut() -> None:
    long = "x" * (MOST_KEPT_TOKENS * text_for_model.BYTES_PER_TOKEN)
    rebuilt = build_compacted_history([], ["lost", long, "newest"], "summary")
    texts = [message_text(item) for item in rebuilt if isinstance(item, MessageItem)]
    assert texts[1:] == ["newest", "summary"]
    assert "tokens truncated" in texts[0]
    assert "lost" not in texts[0]
    assert sum(map(text_for_model.estimate_tokens, texts[:2])) <= MOST_KEPT_TOKENS + 20


def test_images_are_no_words() -> None:
    parts = (InputText(text="a"), OutputText(text="b"))
    assert message_text(MessageItem(role="user", content=parts)) == "a\nb"


# --- sizes
@given(st.text(), st.integers(0, 50))
def test_a_text_that_was_cut_says_so_and_fits(text: str, tokens: int) -> None:
    cut = text_for_model.within_tokens(text, tokens)
    if text_for_model.estimate_tokens(text) <= tokens:
        assert cut == text
    else:
        head, _, tail = cut.partition("tokens truncated…")
        assert len((head.rpartition("…")[0] + tail).encode()) <= tokens * text_for_model.BYTES_PER_TOKEN


@given(st.lists(st.sampled_from(["", "a", "ä€😀" * 40, "x" * 300, "\r"]), max_size=400))
def test_what_the_model_is_shown_is_bounded(lines: list[str]) -> None:
    text = "\n".join(lines)
    shown = text_for_model.shorten(text)
    if len(text.encode()) <= text_for_model.MAX_BYTES and len(lines) <= text_for_model.MAX_LINES:
        assert shown == text
    else:
        assert shown.startswith("Total output lines: ")
    assert len(shown.encode()) <= text_for_model.MAX_BYTES + 100
    assert shown.count("\n") <= text_for_model.MAX_LINES + 10


def test_head_and_tail_of_many_lines_are_shown() -> None:
    shown = text_for_model.shorten("\n".join(map(str, range(1000))))
    assert "\n0\n1\n" in shown
    assert shown.endswith("998\n999")
    assert "[... omitted 744 of 1000 lines ...]" in shown


def test_a_time_out_comes_first_in_the_output() -> None:
    assert (
        text_for_model.command_output("x", text_for_model.STANDARD_OUTPUT, timed_out=True, seconds=1.5)
        == "command timed out after 1500 milliseconds\nx"
    )


@pytest.mark.parametrize("output", ["plain", 'quo"ted', "ünïcode\n", "\x1b[0m"])
def test_the_answer_to_a_shell_call_is_json(output: str) -> None:
    said = json.loads(text_for_model.command_result(output, 3, 0.26))
    assert said == {"output": output, "metadata": {"exit_code": 3, "duration_seconds": 0.3}}


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
    """Return whether every output has a call before it, and every call one output after it."""
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


@pytest.mark.parametrize("mime", PICTURES)
def test_the_kind_is_known_by_what_is_in_the_file(tmp_path: Path, mime: str) -> None:
    (tmp_path / "image").write_bytes(PICTURES[mime])
    assert image_data_url(tmp_path / "image") == picture_url(PICTURES[mime], mime)


def test_a_file_that_is_too_large_is_refused_by_what_it_holds(tmp_path: Path) -> None:
    with (tmp_path / "a.png").open("wb") as file:
        file.write(PNG)
        file.truncate(MAX_IMAGE_BYTES)
    image_data_url(tmp_path / "a.png")
    os.truncate(tmp_path / "a.png", MAX_IMAGE_BYTES + 1)
    with pytest.raises(ImageUnreadable, match="larger than"):
        image_data_url(tmp_path / "a.png")


def test_only_files_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(ImageUnreadable, match="not a file"):
            image_data_url(path)
    with pytest.raises(FileNotFoundError):
        image_data_url(tmp_path / "missing")
