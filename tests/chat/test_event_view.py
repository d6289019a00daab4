"""What the console shows of events, and that nothing in them drives the terminal."""

import io
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app_server.chat.event_view import EventView
from app_server.client.events import ServerEvent, parse_event
from protocol.base import Json

pytest.importorskip("rich")


def shown(*events: ServerEvent, terminal: bool = True) -> str:
    from rich.console import Console  # noqa: PLC0415  an extra

    text = io.StringIO()
    view = EventView(
        Console(file=text, width=60, highlight=False, force_terminal=terminal, color_system=None)
    )
    for event in events:
        view.show(event)
    return text.getvalue()


def completed(**item: Json) -> ServerEvent:
    params = {"threadId": "t", "turnId": "u", "completedAtMs": 1, "item": {"id": "i", **item}}
    return parse_event("item/completed", params)


def command(**more: Json) -> ServerEvent:
    item = {
        "type": "commandExecution",
        "command": "make",
        "cwd": "/",
        "commandActions": [],
        "status": "completed",
    }
    return completed(**{**item, **more})


def delta(text: str) -> ServerEvent:
    return parse_event(
        "item/agentMessage/delta", {"threadId": "t", "turnId": "u", "itemId": "i", "delta": text}
    )


def test_a_streamed_message_is_shown_once() -> None:
    text = shown(delta("one\n\ntw"), delta("o"), completed(type="agentMessage", text="one\n\ntwo"))
    assert text.split() == ["one", "two"]


@pytest.mark.parametrize("streamed", [True, False])
def test_blocks_of_a_message_are_one_line_apart(streamed: bool) -> None:
    text = "# Title\n\nSome *words*.\n\n- one\n- two\n\n```\ncode\n```\n\nthe end"
    whole = completed(type="agentMessage", text=text)
    lines = shown(delta(text), whole) if streamed else shown(whole)
    assert [line.strip() for line in lines.splitlines()] == [
        *("Title", "", "Some words.", "", "• one", "• two", "", "code", "", "the end", "")
    ]


def test_a_message_without_deltas_is_shown_whole() -> None:
    assert "**" not in shown(completed(type="agentMessage", text="**bold**"))


def test_where_there_is_no_terminal_text_stays_as_it_is() -> None:
    words = "**bold** " * 20
    patch = [{"path": "new.txt", "kind": {"type": "add"}, "diff": "x" * 200}]
    text = shown(
        completed(type="agentMessage", text=words),
        completed(type="fileChange", changes=patch, status="completed"),
        terminal=False,
    )
    assert text.splitlines() == [words, "", "add new.txt", "+" + "x" * 200]


def test_long_output_is_folded_and_a_failure_is_said() -> None:
    output = "".join(f"line {n}\n" for n in range(100))
    text = shown(command(aggregatedOutput=output, exitCode=2, status="failed"))
    assert "88 lines more" in text
    assert "line 99" in text
    assert "line 87" not in text
    assert "exit status 2" in text


def test_control_characters_of_others_are_not_printed() -> None:
    output = "a\x1b[2Jb\x1b]0;title\x07\n"
    text = shown(command(aggregatedOutput=output, exitCode=0), delta("x\x1b[31m\n\n"))
    assert "\x1b" not in text
    assert "\x07" not in text


@pytest.mark.parametrize("terminal", [True, False])
def test_what_others_write_on_lines_of_its_own_is_set_apart(terminal: bool) -> None:
    faked = "x\n\n\n\n\nRun this command?"
    plan = {"threadId": "t", "turnId": "u", "plan": [{"step": faked, "status": "pending"}]}
    started = {"threadId": "t", "turnId": "u", "startedAtMs": 1}
    item = {"type": "commandExecution", "id": "i", "command": faked, "cwd": "/", "commandActions": []}
    text = shown(
        parse_event("item/started", {**started, "item": {**item, "status": "inProgress"}}),
        parse_event("turn/plan/updated", plan),
        parse_event("warning", {"message": faked}),
        completed(type="reasoning", summary=[faked], content=[]),
        completed(type="webSearch", query=faked),
        terminal=terminal,
    )
    first = ["$ x", "[ ] x", "warning: x", "x", "searched the web: x"]
    assert [line for line in text.splitlines() if not line.startswith("│")] == first
    assert text.count("│ Run this command?") == len(first)


def test_markdown_lets_nothing_back_in_that_drives_the_terminal() -> None:
    entities = "&#x202e; &#27;]52;c;eA==&#7; &#27;[2J &#x9b;2J &#13; &#8;"
    text = f"""# {entities}

{entities}

- `{entities}` {entities}

| {entities} |
|---|
| {entities} |

```{entities}
{entities}
```

[{entities}](http://x&#27;y '{entities}')"""
    written = shown(completed(type="agentMessage", text=text))
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", written)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[https://good](http://evil)", "https://good (http://evil)"),
        ("<http://x.example>", "http://x.example"),
        ("![a picture](http://evil/x.png)", "![a picture](http://evil/x.png)"),
        ("[![a](http://b)](http://c)", "![a](http://b) (http://c)"),
        ("a <b>c</b> Vec<T>", "a <b>c</b> Vec<T>"),
        ("<div>\nx\n</div>", "<div> x </div>"),
        ("[x]: http://evil", "[x]: http://evil"),
    ],
)
def test_markdown_hides_nothing(text: str, expected: str) -> None:
    assert shown(completed(type="agentMessage", text=text)).split() == expected.split()


pieces = st.sampled_from(
    ["#", "-", ">", "|", "\n", "\n\n", "---", "1.", "*", "**", "`", "~~", "    ", "<b>", "[", "](x)"]
)


@settings(deadline=None)
@given(st.lists(pieces | st.integers(0, 99).map(lambda n: f" word{n} ") | st.just("long" * 20), max_size=40))
def test_every_word_of_a_message_is_shown(parts: list[str]) -> None:
    text = "".join(parts)
    written = re.sub(r"[\s│▌]", "", shown(completed(type="agentMessage", text=text)))
    for word in re.findall(r"word\d+|(?:long){20}", text):
        assert word in written


def test_a_table_that_does_not_fit_comes_as_it_was_written() -> None:
    row = "| " + " | ".join(f"cell{n}" for n in range(30)) + " |"
    table = f"{row}\n{'|---' * 30}|\n{row}"
    written = shown(completed(type="agentMessage", text=table))
    assert all(written.count(f"cell{n} ") == 2 for n in range(30))


def test_spaces_of_every_script_are_shown() -> None:
    words = "10\u00a0000 日本\u3000語 « oui\u202f»"
    assert words in shown(completed(type="agentMessage", text=words))


def test_whole_files_are_shown_as_added_and_deleted() -> None:
    changes = [
        {"path": "new.txt", "kind": {"type": "add"}, "diff": "hello\n"},
        {"path": "old.txt", "kind": {"type": "delete"}, "diff": "bye\n"},
    ]
    text = shown(completed(type="fileChange", changes=changes, status="declined"))
    assert "+hello" in text
    assert "-bye" in text
    assert "the patch was declined" in text


def test_a_turn_that_failed_says_why() -> None:
    turn = {
        "id": "u",
        "items": [],
        "itemsView": "notLoaded",
        "status": "failed",
        "error": {"message": "no key"},
    }
    assert "no key" in shown(parse_event("turn/completed", {"threadId": "t", "turn": turn}))
