"""Consent that a user gave in codex holds here, and the other way round. Both are asked about the same files.

REFERENCE_CODEX_THREADS names the program: REFERENCE_CODEX_THREADS=/path/to/codex make test ARGS="-k interchange"
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from app_server.engine.hooks.hook_definitions import HookTrust
from tests.engine.hooks.test_hook_files import Place

REFERENCE = os.environ.get("REFERENCE_CODEX_THREADS", "")

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not REFERENCE, reason="REFERENCE_CODEX_THREADS names no program"),
]

EVENTS = (
    *(
        "PreToolUse",
        "PermissionRequest",
        "PostToolUse",
        "PreCompact",
        "PostCompact",
        "SessionStart",
        "SessionEnd",
    ),
    *("UserPromptSubmit", "SubagentStart", "SubagentStop", "Stop", "Interrupt"),
)
HANDLERS: Sequence[Mapping[str, Any]] = (
    {"command": "/bin/true", "timeout": 5},
    {"command": "  spaces 'and' \"quotes\" \\ ", "timeout": 0},
    {"command": "é ß 日本 \u2028 😀 <&> / \x7f \x01 \t", "statusMessage": "ünd \n"},
    {"command": "x", "async": True, "timeout": 100000, "additionalContextLimit": 0},
    {"command": "x", "commandWindows": "y.exe", "onFailure": "block", "sandbox": True, "later": [1]},
    {"command": "x", "statusMessage": None, "timeout": None},
)
MATCHERS = (None, "", "*", "Bash", "mcp__.*|[Ee]dit")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(Path(os.path.realpath(tmp_path)))


def ask(place: Place) -> Mapping[str, Any]:
    """Return what the reference says about the hooks of a folder, by their keys."""
    requests = (
        {"id": 1, "method": "initialize", "params": {"clientInfo": {"name": "test", "version": "1"}}},
        {"method": "initialized"},
        {"id": 2, "method": "hooks/list", "params": {"cwds": [str(place.cwd)]}},
    )
    with subprocess.Popen(
        [REFERENCE, "app-server"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=place.home,
        env={"PATH": os.environ["PATH"], "CODEX_HOME": str(place.home), "HOME": str(place.home)},
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for request in requests:
            print(json.dumps(request), file=process.stdin, flush=True)
        answer = next(line for text in process.stdout if (line := json.loads(text)).get("id") == 2)
        process.kill()
    [entry] = answer["result"]["data"]
    assert entry["errors"] == []
    return {hook["key"]: hook for hook in entry["hooks"]}


def write_hooks(place: Place) -> None:
    groups = [
        {"hooks": [{"type": "command", **handler} for handler in HANDLERS]}
        | ({} if matcher is None else {"matcher": matcher})
        for matcher in MATCHERS
    ]
    text = json.dumps({"hooks": dict.fromkeys(EVENTS, groups)})
    place.write(place.home / "hooks.json", text)
    place.write(place.top / ".codex/hooks.json", text)
    inline = '[[hooks.PreToolUse]]\nmatcher = "Bash"\n[[hooks.PreToolUse.hooks]]\ntype = "command"\ncommand = "x"\n'
    place.write(place.cwd / ".codex/config.toml", inline)


def test_keys_digests_and_order_are_the_same(place: Place) -> None:
    write_hooks(place)
    theirs, ours = ask(place), place.load()
    assert [each.key for each in ours.handlers()] == list(theirs)
    assert len(theirs) == 2 * len(EVENTS) * len(MATCHERS) * len(HANDLERS) + 1
    for each in ours.handlers():
        shown = theirs[each.key]
        assert (each.digest, each.display_order) == (shown["currentHash"], shown["displayOrder"]), shown
        assert (each.definition.command, each.definition.matcher) == (shown["command"], shown["matcher"])


def test_what_is_trusted_there_is_trusted_here_and_the_other_way_round(place: Place) -> None:
    write_hooks(place)
    theirs = ask(place)
    consent = "".join(
        f"[hooks.state.{json.dumps(key)}]\ntrusted_hash = {json.dumps(hook['currentHash'])}\n"
        for key, hook in theirs.items()
    )
    place.configure(consent)
    ours = place.load().handlers()
    assert {each.trust.value for each in ours} == {"trusted"}
    # What is written here has more fields, which the reference passes over.
    files = 'trusted_files = { "/bin/true" = "sha256:0" }\n'
    place.configure(
        '[hooks]\non_failure = "block"\n'
        + "".join(
            f'[hooks.state.{json.dumps(each.key)}]\ntrusted_hash = "{each.digest}"\n{files}' for each in ours
        )
    )
    assert {hook["trustStatus"] for hook in ask(place).values()} == {"trusted"}
    # Another definition is modified for both.
    path = place.home / "hooks.json"
    place.write(path, path.read_text("utf-8").replace("/bin/true", "/bin/false"))
    there = {key: hook["trustStatus"] for key, hook in ask(place).items()}
    for each in place.load().handlers():
        if each.source_path == str(path):
            assert each.trust.value == there[each.key]
            assert (each.definition.command == "/bin/false") == (each.trust is HookTrust.MODIFIED)
