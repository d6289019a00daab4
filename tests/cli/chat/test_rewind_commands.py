"""`/rewind`, `/undo` and `/redo` in the chat."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.chat_worlds import chat_of_lines
from tests.support.scripted_model import patches, reply, says, script

pytestmark = pytest.mark.scenario

PATCH = "*** Begin Patch\n*** Update File: a\n@@\n-1\n+2\n*** End Patch"
FULL = {"approval_policy": "never", "sandbox_mode": "danger-full-access"}


async def talked(root: Path, lines: str) -> str:
    workspace = root / "workspace"
    workspace.mkdir(parents=True)
    (workspace / "a").write_text("1\n")
    replies = (
        *(reply(patches(PATCH)), reply(says("One."))),
        *(reply(script("echo new > n")), reply(says("Two."))),
    )
    return await chat_of_lines(root, lines, *replies, config=FULL)


async def test_undo_takes_the_files_back_and_redo_brings_them_again(tmp_path: Path) -> None:
    output = await talked(tmp_path, "first\nsecond\n/undo uncertain\n/undo\n/redo\n/quit\n")
    assert "1 file deleted" in output
    assert output.count("1 file restored") == 2
    assert "/redo puts back what was taken back" in output
    assert (tmp_path / "workspace" / "a").read_text() == "2\n"
    assert not (tmp_path / "workspace" / "n").exists()


async def test_undo_asks_about_what_may_be_the_users(tmp_path: Path) -> None:
    output = await talked(tmp_path, "first\nsecond\n/undo\n/quit\n")
    assert "1  all of these  (1 file changed while a command ran, by it or by you)" in output
    assert "/undo uncertain takes back what changed while a command ran, too" in output
    assert (tmp_path / "workspace" / "n").exists()


async def test_rewind_lists_messages_shows_what_it_would_do_and_does_it(tmp_path: Path) -> None:
    output = await talked(tmp_path, "first\nsecond\n/rewind\n/rewind 2\n/rewind 2 both uncertain\n/quit\n")
    assert "  1  second  (1 file)" in output
    assert "  2  first  (1 file)" in output
    assert "1 file restored, 1 kept (changed while a command ran); 2 turns leave the conversation" in output
    assert "1 file restored, 1 deleted" in output
    assert "2 turns left the conversation" in output
    assert (tmp_path / "workspace" / "a").read_text() == "1\n"
    assert not (tmp_path / "workspace" / "n").exists()


async def test_without_changes_there_is_nothing_to_take_back(tmp_path: Path) -> None:
    output = await chat_of_lines(tmp_path, "/rewind\n/undo\n/redo\n/quit\n")
    assert "there is no message to go back to" in output
    assert "nothing to undo" in output
    assert "nothing to take back" in output
