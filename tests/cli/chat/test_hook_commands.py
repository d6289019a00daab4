"""`/hooks` in the chat: what runs, and how the user agrees to it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tomli

from tests.support.chat_worlds import PlayChat, chat_of_lines
from tests.support.terminal import Terminal

pytestmark = pytest.mark.scenario


def write_hooks(root: Path, *commands: str) -> Path:
    home = root / "home"
    home.mkdir(parents=True, exist_ok=True)
    handlers = [{"type": "command", "command": each} for each in commands]
    path = home / "hooks.json"
    path.write_text(json.dumps({"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": handlers}]}}), "utf-8")
    return path


def states(root: Path) -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = (
        tomli.loads((root / "home/config.toml").read_text("utf-8")).get("hooks", {}).get("state", {})
    )
    return found


async def test_hooks_are_shown_and_agreed_to_by_their_numbers(tmp_path: Path) -> None:
    path = write_hooks(tmp_path, "guard --strict", "other")
    output = await chat_of_lines(tmp_path, "/hooks\n/hooks trust 2\n/hooks\n/quit\n")
    assert "  1  preToolUse Bash: does not run: you have not agreed to it\n     guard --strict\n" in output
    assert str(path) in output.replace("\n", "")
    assert "/hooks trust NUMBER agrees to one" in output
    assert "from the next turn on runs: other" in output
    assert "  2  preToolUse Bash: runs\n" in output
    assert list(states(tmp_path)) == [f"{path}:pre_tool_use:0:1"]


async def test_consent_needs_a_list_that_was_shown(tmp_path: Path) -> None:
    write_hooks(tmp_path, "guard")
    output = await chat_of_lines(tmp_path, "/hooks trust all\n/quit\n")
    assert "does not run: you have not agreed to it" in output
    assert states(tmp_path) == {}


async def test_all_hooks_are_agreed_to_and_one_is_switched_off(tmp_path: Path) -> None:
    path = write_hooks(tmp_path, "one", "two")
    output = await chat_of_lines(tmp_path, "/hooks\n/hooks trust all\n/hooks off 1\n/quit\n")
    assert "from the next turn on is switched off: one" in output
    first, second = (states(tmp_path)[f"{path}:pre_tool_use:0:{index}"] for index in (0, 1))
    assert first["enabled"] is False
    assert str(second["trusted_hash"]).startswith("sha256:")


@pytest.mark.parametrize(
    "line", ["/hooks trust", "/hooks trust 0", "/hooks trust 3", "/hooks delete 1", "/hooks 1"]
)
async def test_what_is_no_number_of_the_list_is_refused(tmp_path: Path, line: str) -> None:
    write_hooks(tmp_path, "guard")
    output = await chat_of_lines(tmp_path, f"/hooks\n{line}\n/quit\n")
    assert "expected nothing, or trust, off or on" in output
    assert states(tmp_path) == {}


async def test_a_command_is_shown_in_one_line_without_control_characters(tmp_path: Path) -> None:
    write_hooks(tmp_path, "true\n\x1b[2Jrm -rf ~")
    output = await chat_of_lines(tmp_path, "/hooks\n/quit\n")
    assert r"true\n\x1b[2Jrm -rf ~" in output


async def test_without_hooks_there_is_nothing_to_show(tmp_path: Path) -> None:
    assert "there are no hooks here" in await chat_of_lines(tmp_path, "/hooks\n/quit\n")


async def test_a_terminal_asks_about_each_hook(chat: PlayChat, short_folder: Path) -> None:
    path = write_hooks(short_folder, "guard", "other")

    def play(t: Terminal) -> None:
        t.say("/hooks")
        t.wait_to_see("hook: run it?", "run it from the next turn on: guard")
        t.press("\x1b[B\r")
        t.wait_for("from the next turn on runs: guard")
        t.wait_to_see("run it from the next turn on: other")
        t.press("\r")

    await chat(play)
    assert list(states(short_folder)) == [f"{path}:pre_tool_use:0:0"]
