"""The chat without its terminal: how events are shown, that no text in them controls the console, and lines in
and out.
"""

import io
import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from app_server.cli.chat.chat_command import INSTALL_EXTRA, MISSING_EXTRA
from app_server.cli.chat.event_view import EventView
from app_server.cli.chat.markdown_blocks import MarkdownBlocks
from app_server.cli.chat.question_rows import cut_to
from app_server.client.events import ServerEvent, parse_event
from app_server_protocol.encoding import Json
from tests.support.chat_worlds import chat_of_lines
from tests.support.scripted_model import Reply, reply, runs, says

pytestmark = pytest.mark.scenario


def shown(*events: ServerEvent, terminal: bool = True) -> str:
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


@pytest.mark.parametrize(
    ("event", "status", "entries", "told"),
    [
        ("preToolUse", "blocked", [("feedback", "no pushes")], "the PreToolUse hook of /h.json: no pushes"),
        ("stop", "failed", [("error", "ended with 1")], "the Stop hook of /h.json: ended with 1"),
        ("stop", "failed", [], "the Stop hook of /h.json was ended"),
        ("userPromptSubmit", "blocked", [("feedback", "told by a warning")], ""),
        ("postToolUse", "completed", [("context", "for the model")], ""),
    ],
)
def test_what_a_hook_forbade_or_why_it_failed_is_shown(
    event: str, status: str, entries: list[tuple[str, str]], told: str
) -> None:
    run = {
        "id": "r",
        "eventName": event,
        "handlerType": "command",
        "executionMode": "sync",
        "scope": "turn",
        "sourcePath": "/h.json",
        "displayOrder": 0,
        "status": status,
        "startedAt": 1,
        "entries": [{"kind": kind, "text": text} for kind, text in entries],
    }
    text = shown(parse_event("hook/completed", {"threadId": "t", "turnId": "u", "run": run}), terminal=False)
    assert text.strip() == (f"warning: {told}" if told else "")


def delta(text: str) -> ServerEvent:
    return parse_event(
        "item/agentMessage/delta", {"threadId": "t", "turnId": "u", "itemId": "i", "delta": text}
    )


@pytest.mark.parametrize("streamed", [True, False])
def test_blocks_of_a_message_are_one_line_apart(streamed: bool) -> None:
    text = "# Title\n\nSome *words*.\n\n- one\n- two\n\n```\ncode\n```\n\nthe end"
    whole = completed(type="agentMessage", text=text)
    lines = shown(delta(text), whole) if streamed else shown(whole)
    assert [line.strip() for line in lines.splitlines()] == [
        *("Title", "", "Some words.", "", "• one", "• two", "", "code", "", "the end", "")
    ]


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
    plan = {
        "threadId": "t",
        "turnId": "u",
        "explanation": faked,
        "plan": [{"step": faked, "status": "pending"}],
    }
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
    first = ["$ x", "the plan: x", "[ ] x", "warning: x", "x", "searched the web: x"]
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
@example(["~~~~", "long" * 20])
@example(["~~~~", "python word1\n", "word2"])
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


def blocks_of(*pieces: str) -> list[str]:
    blocks = MarkdownBlocks()
    return [*(block for piece in pieces for block in blocks.feed(piece)), *blocks.flush()]


def test_a_paragraph_is_complete_at_the_empty_line() -> None:
    blocks = MarkdownBlocks()
    assert blocks.feed("one\ntwo") == []
    assert blocks.feed("\n\nthree") == ["one\ntwo\n"]
    assert blocks.flush() == ["three\n"]


def test_code_is_one_block_with_its_empty_lines() -> None:
    assert blocks_of("```py\na\n\nb\n```\nafter") == ["```py\na\n\nb\n```\n", "after\n"]
    assert blocks_of("~~~\n```\n\n~~~\n") == ["~~~\n```\n\n~~~\n"]


def test_code_that_does_not_end_is_shown_at_the_end() -> None:
    assert blocks_of("```\nx\n\n") == ["```\nx\n\n"]


texts = st.text(alphabet="ab `~\n*-")


@given(texts, st.lists(st.integers(0, 40)))
def test_how_the_text_is_cut_changes_nothing(text: str, cuts: list[int]) -> None:
    places = sorted({min(cut, len(text)) for cut in cuts} | {0, len(text)})
    pieces = [text[a:b] for a, b in pairwise(places)]
    assert blocks_of(*pieces) == blocks_of(text)


@given(texts)
def test_every_line_with_something_on_it_is_in_one_block(text: str) -> None:
    shown = [line for block in blocks_of(text) for line in block.splitlines() if line.strip()]
    assert shown == [line for line in text.split("\n") if line.strip()]


@given(st.text(st.characters(exclude_categories=("Cc", "Cs"))), st.integers(1, 40))
def test_a_line_is_cut_to_the_columns_that_there_are(text: str, columns: int) -> None:
    cut = cut_to(text, columns)
    assert cell_len(cut) <= columns
    assert cut == text or cut.rstrip("… ") in text


async def test_a_line_is_a_turn_and_a_question_takes_the_next_one(tmp_path: Path) -> None:
    replies = (reply(runs("touch", "made")), reply(says("It is **made**.")), reply(says("Goodbye.")))
    shown = await chat_of_lines(tmp_path, "make it\ny\nbye\n", *replies)
    assert (tmp_path / "workspace" / "made").exists()
    assert "[y] yes" in shown
    assert shown.index("$ touch made") < shown.index("It is **made**.") < shown.index("Goodbye.")


async def test_at_the_end_of_the_lines_a_question_is_declined(tmp_path: Path) -> None:
    shown = await chat_of_lines(tmp_path, "make it", reply(runs("touch", "made")), reply(says("Then not.")))
    assert not (tmp_path / "workspace" / "made").exists()
    assert shown.endswith("Then not.\n\n")


async def test_warnings_are_shown_and_an_error_once(tmp_path: Path) -> None:
    config: Json = {"modle": "x", "mcp_servers": {"absent": {"command": "/nonexistent"}}}
    refused = Reply(status=400, body=b'{"error": {"message": "not today"}}')
    shown = await chat_of_lines(tmp_path, "begin\n", refused, config=config)
    assert "unknown setting `modle` is ignored" in shown
    assert "warning: the MCP server absent did not start: " in shown
    assert shown.count("not today") == 1


async def test_the_status_says_where_nothing_is_stored(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "sessions").write_text("in the way")
    shown = await chat_of_lines(tmp_path, "begin\n/status\n", reply(says("One.")))
    assert "warning: This conversation cannot be stored at the moment" in shown
    assert shown.rstrip().endswith(".jsonl (nothing is stored there)")


async def test_threads_are_listed_with_numbers(tmp_path: Path) -> None:
    lines = "/resume\nwords 日本語\n/new\n/resume absent\n/resume 日本\n/resume 1\nand?\n/quit\n"
    shown = await chat_of_lines(tmp_path, lines, reply(says("One.")), reply(says("Two.")))
    assert "no stored thread\n" in shown
    assert "no stored thread contains 'absent'\n" in shown
    assert f"  1  words 日本語  ({tmp_path / 'workspace'})\n" in shown
    assert shown.endswith("> words 日本語\nOne.\n\nTwo.\n\n")


WITHOUT_AN_EXTRA = """
import argparse, sys
sys.modules[sys.argv[1]] = None  # as where it is not installed
from app_server.engine.support import lazy_imports
lazy_imports.install()
from app_server.cli.chat.chat_command import run_chat
sys.exit(run_chat(argparse.Namespace(plain=False)))
"""


@pytest.mark.parametrize("library", ["rich.console", "prompt_toolkit"])
def test_without_its_libraries_it_says_what_to_install(library: str) -> None:
    """In a process of its own: where the library is installed, the modules that import it are loaded by now."""
    control, terminal = os.openpty()
    try:
        done = subprocess.run(
            (sys.executable, "-c", WITHOUT_AN_EXTRA, library),
            stdin=terminal,
            stdout=terminal,
            stderr=subprocess.PIPE,
            env=os.environ | {"TERM": "xterm"},
            text=True,
            check=False,
        )
    finally:
        os.close(control)
        os.close(terminal)
    assert done.stderr == f"app-server chat: {MISSING_EXTRA}\n→ {INSTALL_EXTRA}\n"
    assert done.returncode == 2
