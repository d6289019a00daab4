"""The chat where there is no terminal: lines in, lines out."""

import argparse
import builtins
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from app_server.chat.chat_command import MISSING_EXTRA, run_chat
from protocol.base import Json
from tests.support.chat_worlds import chat_of_lines
from tests.support.scripted_model import Reply, reply, runs, says


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


def test_without_its_libraries_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = builtins.__import__

    def without_rich(
        name: str,
        globals: Mapping[str, Json] | None = None,
        locals: Mapping[str, Json] | None = None,
        fromlist: Sequence[str] = (),
        level: int = 0,
    ) -> object:
        if name.startswith("rich"):
            raise ImportError(name)
        return real(name, globals, locals, fromlist, level)

    monkeypatch.setattr(builtins, "__import__", without_rich)
    assert run_chat(argparse.Namespace(demo=False, cd=None, resume=None)) == 2
    assert MISSING_EXTRA in capsys.readouterr().err
