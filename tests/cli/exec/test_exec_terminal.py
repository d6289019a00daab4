"""`app-server exec` in a real terminal: its display while the turn runs. The final message is printed once."""

from pathlib import Path

import pytest

from tests.support.program import BIN, SCRIPT
from tests.support.terminal import Terminal
from tests.support.world import PATH, user_environment

pytestmark = pytest.mark.process


def started(folder: Path, *command: str) -> Terminal:
    environment = user_environment(folder, PATH=f"{BIN}:{PATH}")
    return Terminal(columns=100).start(command, environment=environment, cwd=folder)


def test_a_message_is_shown_as_it_comes(tmp_path: Path) -> None:
    with started(tmp_path, SCRIPT, "exec", "--demo", "think") as terminal:
        assert " 399" not in terminal.wait_for("1, 2, 3,")
        terminal.press("\x03")
        assert terminal.wait_for_end() == 130


def test_a_message_is_shown_once(tmp_path: Path) -> None:
    with started(tmp_path, SCRIPT, "exec", "--demo", "hello") as terminal:
        shown = terminal.wait_for("tokens:")
        assert terminal.wait_for_end() == 0
    assert shown.count("Everything else I answer with this text.") == 1
    assert shown.strip().splitlines()[-1].endswith(" in, 5 out")


def test_a_command_begins_a_line_and_ends_it(tmp_path: Path) -> None:
    with started(tmp_path, SCRIPT, "exec", "--demo", "check") as terminal:
        assert terminal.wait_for_end() == 0
        shown = terminal.wait_for("Say `repair`")
    [line] = [line for line in shown.splitlines() if line.startswith("$ ")]
    assert line.startswith("$ sh check.sh -> exit 1 in ")


@pytest.mark.parametrize(
    ("redirected", "streams"), [("> out", True), ("2> err", True), ("> out 2> err", False)]
)
def test_what_is_no_terminal_gets_whole_lines(redirected: str, streams: bool, tmp_path: Path) -> None:
    message = "That did not work. Say `repair`, and I propose a patch."
    command = f"app-server exec --demo check {redirected}; echo the end"
    with started(tmp_path, "sh", "-c", command) as terminal:
        assert terminal.wait_for_end() == 0
        shown = terminal.wait_for("the end")
    assert shown.count(message) == streams
    if "> out" in redirected:
        assert (tmp_path / "out").read_text() == f"{message}\n"
    if "2> err" in redirected:
        assert message not in (tmp_path / "err").read_text()
        assert "$ sh check.sh -> exit 1 in " in (tmp_path / "err").read_text()
