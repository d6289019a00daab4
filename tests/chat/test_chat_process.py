"""`app-server chat --demo` as people start it, in a terminal of its own. `make captures` takes the pictures of
docs/chat.md from this run.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.screen_captures import DOCS, RECORDING, capture
from tests.support.terminal import Terminal
from tests.support.world import PATH, SCRIPT

pytestmark = pytest.mark.process

CTRL_C, DOWN = "\x03", "\x1b[B"
PICTURES = ("chat-command", "chat-patch", "chat-working", "chat-resume")


def test_the_demo_from_its_start_to_its_end(tmp_path: Path) -> None:
    folder = "/tmp" if RECORDING else str(tmp_path)  # a short path is for the pictures
    environment = {"PATH": PATH, "HOME": str(tmp_path), "LANG": "C.UTF-8", "TMPDIR": folder}
    with Terminal(columns=84, rows=26) as t:
        t.start((SCRIPT, "chat", "--demo"), environment=environment, cwd=tmp_path)
        t.wait_for("0 tokens")
        t.say("check")
        t.wait_for("why ?")
        t.wait_for("· workspace")
        capture(t, "chat-command")
        t.press("y")
        t.wait_for("a patch.\n\n>\n")
        t.say("repair")
        t.wait_for("Apply this patch to 1 file?")
        t.wait_for("why ?")
        t.wait_for("· workspace")
        capture(t, "chat-patch")
        t.press("y")
        t.wait_for("That worked.\n\n>\n")
        t.say("/new")
        t.wait_for("a new thread")
        t.say("think")
        t.wait_for("40," if RECORDING else "3,")
        capture(t, "chat-working")
        t.press(CTRL_C)
        t.wait_for("interrupted\n>\n")
        t.say("/resume")
        t.wait_for("→ think")
        t.press(DOWN)
        t.wait_for("→ check")
        capture(t, "chat-resume")
        t.resize(50, 20)
        t.press("\r")
        t.wait_for("> repair")
        t.say("/quit")
        assert t.wait_for_end() == 0


def test_the_pictures_are_those_of_the_page() -> None:
    page = (DOCS / "chat.md").read_text(encoding="utf-8")
    for name in PICTURES:
        assert f"({name}.svg)" in page
        assert (DOCS / f"{name}.svg").exists()
