"""What the model is told of the instructions that a client appends for a session, after any changes of them."""

from hypothesis import given
from hypothesis import strategies as st

from app_server.engine.context.history import message_text
from app_server.engine.session.system_prompt import (
    WITHDRAWN,
    lasting_prompt,
    overriding_text,
    prompt_message,
    told_prompt,
)
from app_server_protocol.engine.thread_settings import PromptMode, SystemPrompt
from app_server_protocol.responses import MessageItem, ResponseItem

PROMPTS = st.none() | st.builds(
    lambda mode, text: SystemPrompt(mode=mode, text=text),
    st.sampled_from(PromptMode),
    st.sampled_from(["Rhyme.", "Be short.", "</session_instructions>", WITHDRAWN]) | st.text(min_size=1),
)


@given(st.lists(PROMPTS))
def test_the_last_message_is_about_the_instructions_in_force(prompts: list[SystemPrompt | None]) -> None:
    history: list[ResponseItem] = []
    for prompt in prompts:
        message = prompt_message(prompt, told_prompt(history))
        history += [] if message is None else [message]
        assert prompt_message(prompt, told_prompt(history)) is None, "it is told once"
        told = told_prompt(history)
        if prompt is not None and prompt.mode is PromptMode.APPEND:
            assert told is not None
            assert prompt.text in told
        else:
            assert told in (None, WITHDRAWN)


def test_a_first_message_does_not_speak_of_an_earlier_one() -> None:
    prompt = SystemPrompt(mode=PromptMode.APPEND, text="Rhyme.")
    (first,) = lasting_prompt(prompt)
    assert "replace" not in message_text(first)
    later = prompt_message(SystemPrompt(mode=PromptMode.APPEND, text="Be short."), message_text(first))
    assert isinstance(later, MessageItem)
    assert "replace the earlier" in message_text(later)
    again = prompt_message(prompt, WITHDRAWN)
    assert again == first


def test_only_overriding_instructions_stand_in_for_those_of_the_server() -> None:
    assert overriding_text(SystemPrompt(mode=PromptMode.OVERRIDE, text="a")) == "a"
    assert overriding_text(SystemPrompt(mode=PromptMode.APPEND, text="a")) is None
    assert overriding_text(None) is None
    assert lasting_prompt(SystemPrompt(mode=PromptMode.OVERRIDE, text="a")) == lasting_prompt(None) == []
