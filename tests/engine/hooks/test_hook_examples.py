"""The hooks of docs/hooks.md do what the page says, as they are written there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from app_server.engine.config.config_values import RequestOverrides, SettingsSource
from app_server.engine.config.settings_service import load_config
from app_server.engine.hooks.hook_definitions import HookHandler
from app_server.engine.hooks.hook_entries import HookEntry, read_entries
from app_server.engine.hooks.hook_files import HookFiles
from tests.engine.hooks.hook_examples import hook_examples, shown_forms

EXAMPLES = hook_examples()


class Home:
    """A home of a user, with a repository to work in."""

    def __init__(self, folder: Path) -> None:
        self.user, self.home, self.cwd = folder, folder / ".codex", folder / "project"
        self.home.mkdir()
        self.cwd.mkdir()
        self.git("init", "-q", "-b", "main")
        (self.cwd / "a.py").write_text("x = 1\n")
        (self.cwd / "Makefile").write_text("test:\n\t@! grep -q bad a.py || (echo 1 failed; false)\n")
        self.git("add", "-A")
        self.git("-c", "user.name=me", "-c", "user.email=me@example.org", "commit", "-qm", "first")

    def git(self, *words: str) -> None:
        subprocess.run(("git", *words), cwd=self.cwd, check=True)

    def handler(self) -> HookHandler:
        """Return the hook of the home."""
        source = SettingsSource(home=self.home, cwd=self.cwd, environment={"HOME": str(self.user)})
        hooks = HookFiles(load_config(source, RequestOverrides()), source).load(str(self.cwd))
        assert (hooks.problems, hooks.warnings) == ((), ())
        [handler] = hooks.handlers()
        return handler

    def run(self, handler: HookHandler, **fields: Any) -> subprocess.CompletedProcess[str]:
        """Run a hook with an input, as the server does."""
        common = {"session_id": "s", "cwd": str(self.cwd), "hook_event_name": handler.event.value}
        return subprocess.run(
            ("/bin/sh", "-c", handler.definition.command),
            input=json.dumps({**common, **fields}),
            capture_output=True,
            text=True,
            cwd=self.cwd,
            env={
                **os.environ,
                "HOME": str(self.user),
                "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            },
            check=False,
        )


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def call(command: str, tool: str = "Bash") -> dict[str, Any]:
    return {"tool_name": tool, "tool_input": {"command": command}, "tool_use_id": "c"}


PATCH = "*** Begin Patch\n*** {0}\n*** End Patch"


def test_the_page_has_ten_hooks() -> None:
    assert sorted(EXAMPLES) == list(range(1, 11))


@pytest.mark.parametrize("number", sorted(EXAMPLES))
def test_an_example_names_its_scripts(home: Home, number: int) -> None:
    EXAMPLES[number].install(home.home)
    named = home.handler().named_files
    assert {Path(each).name for each in named} == set(EXAMPLES[number].scripts)


@pytest.mark.parametrize("block", shown_forms(), ids=str)
def test_a_form_of_the_page_is_understood(block: Any, tmp_path: Path) -> None:
    if block.language == "json":
        [entry] = read_entries(json.loads(block.text)["hooks"])
        assert isinstance(entry, HookEntry)
    else:
        (tmp_path / "config.toml").write_text(block.text, encoding="utf-8")
        config = load_config(SettingsSource(home=tmp_path, cwd=tmp_path))
        assert config.notices.warnings == ()


@pytest.mark.parametrize(
    ("number", "fields", "code", "said"),
    [
        (1, call("rm -rf ~/work"), 2, "cannot be undone"),
        (1, call("git push origin main --force"), 2, "cannot be undone"),
        (1, call("rm build/a.o && git push"), 0, ""),
        (2, call(PATCH.format("Update File: app/.env.local"), "apply_patch"), 2, "app/.env.local is not"),
        (2, call(PATCH.format("Add File: db/migrations/1.sql"), "apply_patch"), 2, "1.sql is not"),
        (
            2,
            call(PATCH.format("Update File: a.txt\n*** Move to: uv.lock"), "apply_patch"),
            2,
            "uv.lock is not",
        ),
        (2, call(PATCH.format("Update File: src/environment.py"), "apply_patch"), 0, ""),
        (3, call("make && git push origin"), 0, '"permissionDecision": "ask"'),
        (3, call("git pull"), 0, ""),
        (
            4,
            call("cd x && pip install rich"),
            0,
            '"updatedInput": {"command": "cd x && uv pip install rich"}',
        ),
        (4, call("uv pip install rich"), 0, ""),
        (5, call("npm ci"), 0, '"behavior": "allow"'),
        (5, call("npm ci; rm -rf ."), 0, ""),
        (9, {"source": "startup"}, 0, "## main"),
        (10, {"prompt": "use AKIAABCDEFGHIJKLMNOP"}, 2, "has a credential"),
        (10, {"prompt": "what is an AWS key?"}, 0, ""),
    ],
)
def test_what_an_example_answers(
    home: Home, number: int, fields: dict[str, Any], code: int, said: str
) -> None:
    EXAMPLES[number].install(home.home)
    done = home.run(home.handler(), **fields)
    assert done.returncode == code, done.stderr
    assert said in done.stderr + done.stdout
    assert bool(said) == bool(done.stderr + done.stdout)


def test_changed_files_are_formatted(home: Home) -> None:
    EXAMPLES[6].install(home.home)
    (home.cwd / "a.py").write_text("x = {  'a':1 }\n")
    assert home.run(home.handler(), **call("", "apply_patch")).returncode == 0
    assert (home.cwd / "a.py").read_text() == 'x = {"a": 1}\n'


def test_a_turn_does_not_end_before_the_tests_pass(home: Home) -> None:
    EXAMPLES[7].install(home.home)
    handler = home.handler()
    assert home.run(handler).returncode == 0
    (home.cwd / "a.py").write_text("bad\n")
    failed = home.run(handler)
    assert (failed.returncode, failed.stderr.splitlines()[:2]) == (2, ["The tests fail:", "1 failed"])
    (home.cwd / "a.py").write_text("good\n")
    assert home.run(handler).returncode == 0


def test_every_call_is_recorded(home: Home) -> None:
    EXAMPLES[8].install(home.home)
    handler = home.handler()
    assert handler.definition.is_async
    for command in ("one", "two"):
        home.run(handler, **call(command))
    lines = (home.home / "calls.jsonl").read_text().splitlines()
    assert [json.loads(line)["tool_input"]["command"] for line in lines] == ["one", "two"]
    # What it writes does not make it another hook.
    assert home.handler().named_files == ()
