"""Thoughts and calls in the text of an answer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.engine.config.quirk_settings import ThinkTags
from app_server.engine.model.text_calls import NamedCall, Offered, TextSieve

OFFERED = Offered({"shell": frozenset({"command"}), "look": frozenset()})
ECHO = NamedCall("shell", '{"command": ["echo"]}')

CALLS = [
    '<tool_call>\n{"name": "shell", "arguments": {"command": ["echo"]}}\n</tool_call>',
    '<tool_call>{"name": "shell", "arguments": "{\\"command\\": [\\"echo\\"]}"}</tool_call>',
    '<function=shell>\n<parameter=command>\n["echo"]\n</parameter>\n</function>',
    '<tool_call><function=shell><parameter=command>["echo"]</parameter></function></tool_call>',
    '[TOOL_CALLS][{"name": "shell", "arguments": {"command": ["echo"]}}]',
    '[TOOL_CALLS]shell[ARGS]{"command": ["echo"]}',
    '```json\n{"name": "shell", "parameters": {"command": ["echo"]}}\n```',
    '{"name": "shell", "arguments": {"command": ["echo"]}}',
    '[shell(command=["echo"])]',
]


def sieve(
    *pieces: str, think_tags: ThinkTags = "closed", structured: bool = False, quoted: str = ""
) -> tuple[str, str, list[NamedCall]]:
    """Return the thoughts, the text and the calls of an answer that comes in these pieces."""
    made = TextSieve(think_tags=think_tags, offered=OFFERED, is_quoted=lambda block: block == quoted)
    shown = [each for piece in pieces for each in made.take(piece)]
    rest, calls = made.end(structured=structured)
    thoughts = "".join(text for is_thought, text in [*shown, *rest] if is_thought)
    return thoughts, "".join(text for is_thought, text in [*shown, *rest] if not is_thought), calls


@pytest.mark.parametrize("text", CALLS)
def test_a_whole_text_of_calls_is_calls_however_it_is_cut(text: str) -> None:
    assert sieve(text) == ("", "", [ECHO])
    assert sieve(*text) == ("", "", [ECHO])
    assert sieve(f"I look.\n{text}") == ("", "I look.\n", [ECHO])
    assert sieve(f"<think>hm</think>\n{text}") == ("hm", "", [ECHO])


@pytest.mark.parametrize("text", CALLS)
def test_a_call_among_other_words_is_text(text: str) -> None:
    for words in (f"{text}\nThat is how.", f"One.\nTwo.\n{text}", f"<think>{text}</think>Done."):
        thoughts, shown, calls = sieve(words)
        assert not calls
        assert thoughts + shown in words.replace("<think>", "").replace("</think>", "")
    assert sieve(text, structured=True) == ("", text, [])
    assert sieve(text, quoted=text) == ("", text, [])


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "rm", "arguments": {}}',
        '{"name": "shell", "arguments": {}}',
        '{"name": "shell"}',
        "{",
        "[1, 2]",
        "```json\n{}\n```",
        "[shell(1)]",
        "[shell(command=open('x'))]",
    ],
)
def test_what_is_no_whole_call_of_an_offered_tool_is_text(text: str) -> None:
    assert sieve(text) == ("", text, [])


def test_words_come_at_once() -> None:
    made = TextSieve(think_tags="closed", offered=OFFERED)
    assert made.take("Hel") == [(False, "Hel")]
    assert made.take("lo\n") == [(False, "lo\n")]
    assert made.take("{ ") == []
    assert made.take("a" * 70_000) == [(False, "{ " + "a" * 70_000)]
    assert made.take("more") == [(False, "more")]


def test_an_answer_may_begin_inside_of_its_thoughts() -> None:
    assert sieve("hm</think>yes", think_tags="open") == ("hm", "yes", [])
    assert sieve("<think>hm</think>yes", think_tags="none") == ("", "<think>hm</think>yes", [])
    assert sieve("a <think>hm</think>") == ("", "a <think>hm</think>", [])


@given(
    st.lists(st.text("ab<think>/{[`\n "), max_size=20),
    st.text("ab<think>/{[`\n ", min_size=1),
    st.sampled_from(["none", "closed", "open"]),
)
def test_a_sieve_that_is_done_shows_every_text_as_it_comes(
    pieces: list[str], more: str, tags: ThinkTags
) -> None:
    made = TextSieve(think_tags=tags, offered=OFFERED)
    for piece in [*pieces, "\n\n", "words " * 50, "\n\n"]:
        made.take(piece)
        if made.is_done:
            assert made.take(more) == [(False, more)]
            assert made.end(structured=False) == ([], [])


def test_a_sieve_is_done_when_no_call_may_begin_any_more() -> None:
    made = TextSieve(think_tags="closed", offered=OFFERED)
    done = []
    for piece in ("<think>hm", "</think>", "I look.", "\n", "Then", "more"):
        made.take(piece)
        done.append(made.is_done)
    assert done == [False, False, False, False, True, True]
    only_thoughts = TextSieve(think_tags="closed", offered=None)
    only_thoughts.take("<th")
    assert not only_thoughts.is_done
    only_thoughts.take("ose")
    assert only_thoughts.is_done


@given(st.lists(st.text("ab<think>/{[`\n "), max_size=20))
def test_no_words_are_lost(pieces: list[str]) -> None:
    thoughts, shown, calls = sieve(*pieces, think_tags="none")
    assert (thoughts, shown, calls) == ("", "".join(pieces), [])
