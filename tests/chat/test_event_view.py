"""What the console shows of events, and that nothing in them drives the terminal."""

from __future__ import annotations

import io

import pytest

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
