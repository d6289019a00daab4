"""`app-server chat --demo` as people start it, in a terminal of its own. `make captures` takes the pictures of
docs/chat.md from this run.
"""

import signal
import time
from pathlib import Path
from subprocess import PIPE, Popen, run

import pytest

from app_server.cli.chat.open_questions import SEEN_AFTER
from tests.support.program import SCRIPT
from tests.support.screen_captures import DOCS, RECORDING, capture
from tests.support.terminal import Terminal
from tests.support.waiting import PATIENCE
from tests.support.world import PATH, user_environment

pytestmark = pytest.mark.process

CTRL_C, CTRL_O, DOWN = "\x03", "\x0f", "\x1b[B"
PICTURES = ("chat-slash", "chat-command", "chat-patch", "chat-working", "chat-resume")


def say_when_read(t: Terminal, word: str) -> None:
    """Answer a question like a person who has read it."""
    time.sleep(2 * SEEN_AFTER)
    t.say(word)


def started(t: Terminal, home: Path, *arguments: str, **more: str) -> Terminal:
    return t.start((SCRIPT, "chat", *arguments), environment=user_environment(home, **more), cwd=home)


def test_the_demo_from_its_start_to_its_end(tmp_path: Path) -> None:
    folder = "/tmp" if RECORDING else str(tmp_path)  # pictures show a short path
    with Terminal(columns=84, rows=26) as t:
        started(t, tmp_path, "--demo", TMPDIR=folder)
        t.wait_for("0 tokens")
        t.press("/")
        t.wait_for("/compact")
        capture(t, "chat-slash")
        t.press(CTRL_C)
        t.wait_until_gone("/compact")
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
    command = (SCRIPT, "chat", "--demo")
    with Popen(
        command, env=user_environment(tmp_path), stdin=PIPE, stdout=PIPE, stderr=PIPE, text=True
    ) as chat:
        assert chat.stdout is not None
        assert "/help" in chat.stdout.readline()
        chat.send_signal(number)
        assert chat.wait(PATIENCE) == 128 + number  # stdin is still open
        assert chat.stderr is not None
        assert chat.stderr.read() == ""


def test_a_signal_ends_it_in_a_terminal(tmp_path: Path) -> None:
    with Terminal() as t:
        started(t, tmp_path, "--demo")
        t.wait_for("0 tokens")
        t.signal(signal.SIGTERM)
        assert t.wait_for_end() == 128 + signal.SIGTERM


def test_the_pictures_are_those_of_the_page() -> None:
    page = (DOCS / "chat.md").read_text(encoding="utf-8")
    for name in PICTURES:
        assert f"({name}.svg)" in page
        assert (DOCS / f"{name}.svg").exists()


def test_without_colour_nothing_is_coloured(tmp_path: Path) -> None:
    with Terminal(columns=84, rows=26) as t:
        started(t, tmp_path, "--demo", "repair", NO_COLOR="1")
        t.wait_for("+echo")
        t.wait_for("why ?")
        cells = [cell for line in t.screen.buffer.values() for cell in line.values()]
        assert {(cell.fg, cell.bg) for cell in cells} <= {("default", "default"), ("brightblack", "default")}
        t.press(CTRL_C + CTRL_C)
        assert t.wait_for_end() == 0


def test_plain_lines_are_never_drawn_again(tmp_path: Path) -> None:
    with Terminal(columns=84, rows=26) as t:
        started(t, tmp_path, "--demo", "--plain", "check")
        t.wait_for("[s] stop and say why")
        time.sleep(2 * SEEN_AFTER)
        t.press("y\n")
        t.wait_for("a patch.")
        t.press("/model\n")
        t.wait_for("demo-model")
        t.press("/quit\n")
        assert t.wait_for_end() == 0
        assert t.screen.moves == 0


def test_a_pager_is_lent_the_terminal_and_ctrl_c_is_its_own(tmp_path: Path) -> None:
    with Terminal(columns=84, rows=10) as t:
        started(t, tmp_path, "--demo", "!seq 2000", PAGER="less")
        t.wait_for("lines more (Ctrl-O shows all)")
        t.wait_for("\n>\n")
        t.press(CTRL_O)
        t.wait_for("\n8\n:")
        t.press(CTRL_C + CTRL_C)
        t.press_until("G", lambda: "(END)" in t.text)  # keys typed at that moment are lost with the signal
        t.press("q")
        t.wait_for("tokens · demo-model")
        t.say("/quit")
        assert t.wait_for_end() == 0


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (
            ("resume", "the", "work"),
            "app-server chat: expected the id of a thread, or --last, got 'the'\n→ without either you can choose\n",
        ),
        (("-i", "none.png", "hi"), "--image: none.png: No such file or directory"),
    ],
)
def test_a_wrong_command_line_is_told(tmp_path: Path, words: tuple[str, ...], problem: str) -> None:
    done = run(
        (SCRIPT, "chat", *words),
        env={"PATH": PATH, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert problem in done.stderr


def test_ctrl_c_at_a_question_ends_the_turn_and_not_the_chat(tmp_path: Path) -> None:
    with Terminal(columns=84, rows=40) as t:
        started(t, tmp_path, "--demo", "--plain", "repair")
        t.wait_for("[s] stop and say why")
        t.press(CTRL_C)
        t.wait_for("the turn is interrupted; Ctrl-C again leaves")
        t.wait_for("\ninterrupted")
        t.say("hello")
        t.wait_for("scripted model")
        t.say("/quit")
        assert t.wait_for_end() == 0
