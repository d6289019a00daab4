"""The hooks of docs/hooks.md do what the page says, as they are written there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from app_server.engine.config.config_values import RequestOverrides, SettingsSource
from app_server.engine.config.settings_service import load_config
from app_server.engine.hooks.hook_definitions import HookHandler
from app_server.engine.hooks.hook_entries import HookEntry, read_entries
from app_server.engine.hooks.hook_files import HookFiles
from app_server_protocol.encoding import Json
from tests.engine.hooks.hook_examples import hook_examples, shown_forms
from tests.engine.hooks.hook_scripts import trusted
from tests.support.scripted_model import Reply, patches, reply, says, script
from tests.support.thread_client import ended, items, notified, say, start, turn
from tests.support.world import MakeWorld, World, WorldOptions

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


# --- in turns
WORK: Json = {"approvalPolicy": "on-request", "sandbox": "workspace-write"}
PYTHON_PATCH = "*** Begin Patch\n*** Add File: new.py\n+x = {  'a':1 }\n*** End Patch"


class Played:
    """Turns of a thread with one example in the home."""

    def __init__(self, world: MakeWorld, tmp_path: Path) -> None:
        self._world, self._root = world, tmp_path

    @asynccontextmanager
    async def __call__(self, number: int, *replies: Reply, config: Json = None) -> AsyncIterator[World]:
        example, home = EXAMPLES[number], self._root / "home"
        (self._root / "user").mkdir()
        home.mkdir()
        (self._root / "user" / ".codex").symlink_to(home)
        example.install(home)
        tables = trusted(home / "hooks.json", json.loads(example.hooks)["hooks"])
        environment = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        options: WorldOptions = {"tables": tables, "environment": environment, "git": True}
        if config is not None:
            options["config"] = config
        async with self._world(*replies, **options) as w:
            yield w
            runs = [each["run"] for each in notified(w, "hook/completed")]
            assert runs
            assert [run for run in runs if run["status"] == "failed"] == []


@pytest.fixture
def played(world: MakeWorld, tmp_path: Path) -> Played:
    return Played(world, tmp_path)


async def go(w: World, text: str = "go") -> None:
    await say(w.client, await start(w.client, **WORK), text)


@pytest.mark.scenario
async def test_in_a_turn_a_dangerous_command_is_refused(played: Played) -> None:
    async with played(1, reply(script("rm -rf ~/work")), reply(says("well"))) as w:
        await go(w)
        assert "cannot be undone" in w.model.requests[1].outputs()["c1"]


@pytest.mark.scenario
async def test_in_a_turn_a_protected_file_stays(played: Played) -> None:
    patch = "*** Begin Patch\n*** Add File: .env\n+KEY=1\n*** End Patch"
    async with played(2, reply(patches(patch)), reply(says("well"))) as w:
        await go(w)
        assert not (w.workspace / ".env").exists()
        assert ".env is not changed by hand" in str(w.model.requests[1].input)


@pytest.mark.scenario
async def test_in_a_turn_what_leaves_the_machine_is_asked_about(played: Played) -> None:
    async with played(3, reply(script("git push")), reply(says("well"))) as w:
        thread = await start(w.client, **WORK)
        id = await turn(w.client, thread)
        question = await w.client.expect("item/commandExecution/requestApproval")
        assert "this publishes something" in question["params"]["reason"]
        await w.client.answer(question, {"decision": "decline"})
        await ended(w.client, id)


@pytest.mark.scenario
async def test_in_a_turn_a_command_is_changed(played: Played) -> None:
    async with played(4, reply(script("pip install --help > /dev/null")), reply(says("well"))) as w:
        await go(w)
        [item] = items(w, kind="commandExecution")
        assert "uv pip install --help" in item["command"]


@pytest.mark.scenario
async def test_in_a_turn_a_usual_question_is_answered(played: Played) -> None:
    config = {"approval_policy": "untrusted"}
    async with played(5, reply(script("make test")), reply(says("well")), config=config) as w:
        await say(w.client, await start(w.client, sandbox="workspace-write"))
        [item] = items(w, kind="commandExecution")
        assert item["status"] in ("completed", "failed")
        assert not [
            m for m in w.client.received() if m.get("method") == "item/commandExecution/requestApproval"
        ]


@pytest.mark.scenario
async def test_in_a_turn_a_patched_file_is_formatted(played: Played) -> None:
    async with played(6, reply(patches(PYTHON_PATCH)), reply(says("well"))) as w:
        (w.workspace / "new.py").write_text("")
        w.git("add", "-A")
        w.git("commit", "-qm", "empty")
        (w.workspace / "new.py").unlink()
        await go(w)
        assert (w.workspace / "new.py").read_text() == 'x = {"a": 1}\n'


@pytest.mark.scenario
async def test_in_a_turn_the_tests_have_to_pass(played: Played) -> None:
    replies = (
        reply(script("touch a; echo bad > state")),
        reply(says("done")),
        reply(script("echo good > state")),
        reply(says("done")),
    )
    async with played(7, *replies) as w:
        (w.workspace / "Makefile").write_text("test:\n\t@grep -q good state || (echo 1 failed; false)\n")
        (w.workspace / "state").write_text("good\n")
        w.git("add", "-A")
        w.git("commit", "-qm", "tests")
        await go(w)
        assert "1 failed" in str(w.model.requests[2].input)
        assert (w.workspace / "state").read_text() == "good\n"
        assert len(w.model.requests) == 4


@pytest.mark.scenario
async def test_in_a_turn_calls_are_recorded(played: Played) -> None:
    async with played(8, reply(script("echo one")), reply(says("well"))) as w:
        await go(w)
        [line] = (w.home / "calls.jsonl").read_text().splitlines()
        assert json.loads(line)["tool_input"] == {"command": "echo one"}


@pytest.mark.scenario
async def test_in_a_turn_the_model_is_told_of_the_repository(played: Played) -> None:
    async with played(9, reply(says("well"))) as w:
        await go(w)
        assert "## main" in str(w.model.requests[0].input)


@pytest.mark.scenario
async def test_in_a_turn_a_credential_is_not_sent(played: Played) -> None:
    async with played(10) as w:
        await go(w, "use AKIAABCDEFGHIJKLMNOP")
        assert w.model.requests == []
        assert "has a credential in it" in notified(w, "warning")[-1]["message"]
