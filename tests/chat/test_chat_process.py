"""`app-server chat --demo` as people start it, in a terminal of its own. `make captures` takes the pictures of
docs/chat.md from this run.
"""

import signal
import time
from pathlib import Path
from subprocess import PIPE, Popen

import pytest

from app_server.chat.open_questions import SEEN_AFTER
from tests.support.screen_captures import DOCS, RECORDING, capture
from tests.support.terminal import Terminal
from tests.support.waiting import PATIENCE
from tests.support.world import PATH, SCRIPT

pytestmark = pytest.mark.process

CTRL_C, DOWN = "\x03", "\x1b[B"
PICTURES = ("chat-command", "chat-patch", "chat-working", "chat-resume")


def say_when_read(t: Terminal, word: str) -> None:
    """Answer a question as a person does, who has read it."""
    time.sleep(2 * SEEN_AFTER)
    t.say(word)


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
        say_when_read(t, "y")
        t.wait_for("a patch.\n\n>\n")
        t.say("repair")
        t.wait_for("Change these files?")
        t.wait_for("why ?")
        t.wait_for("· workspace")
        capture(t, "chat-patch")
        say_when_read(t, "yes")
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


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_also_while_it_waits_for_a_line(tmp_path: Path, number: signal.Signals) -> None:
    environment = {"PATH": PATH, "HOME": str(tmp_path), "LANG": "C.UTF-8", "TMPDIR": str(tmp_path)}
    command = (SCRIPT, "chat", "--demo")
    with Popen(command, env=environment, stdin=PIPE, stdout=PIPE, stderr=PIPE, text=True) as chat:
        assert chat.stdout is not None
        assert "/help" in chat.stdout.readline()
        chat.send_signal(number)
        assert chat.wait(PATIENCE) == 128 + number  # stdin is still open
        assert chat.stderr is not None
        assert chat.stderr.read() == ""


def test_a_signal_ends_it_in_a_terminal(tmp_path: Path) -> None:
    environment = {"PATH": PATH, "HOME": str(tmp_path), "LANG": "C.UTF-8", "TMPDIR": str(tmp_path)}
    with Terminal() as t:
        t.start((SCRIPT, "chat", "--demo"), environment=environment, cwd=tmp_path)
        t.wait_for("0 tokens")
        t.signal(signal.SIGTERM)
        assert t.wait_for_end() == 128 + signal.SIGTERM


def test_the_pictures_are_those_of_the_page() -> None:
    page = (DOCS / "chat.md").read_text(encoding="utf-8")
    for name in PICTURES:
        assert f"({name}.svg)" in page
        assert (DOCS / f"{name}.svg").exists()
