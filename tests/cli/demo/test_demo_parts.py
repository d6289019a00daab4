"""The demo's parts without a server: the scripted model, and the checks of what was played."""

import json
from pathlib import Path

import pytest

from app_server.cli.chat.demo_chat import FIRST, SECOND, Played
from app_server.cli.demo.demo_script import FILES, REPAIRED, DemoModel
from app_server.cli.demo.scripted_model import ScriptedModel
from app_server.cli.demo.workspace import DemoWorkspace
from app_server_protocol.encoding import Json


def user(text: str) -> Json:
    return {"role": "user", "content": [{"type": "input_text", "text": text}]}


def output(text: str) -> Json:
    return {"type": "function_call_output", "call_id": "c", "output": text}


@pytest.mark.parametrize(
    ("said", "told", "words"),
    [
        ("repair", "patch rejected by user", "That did not work"),
        ("repair", '{"output":"Success.","metadata":{"exit_code":0}}', "That worked"),
        ("note", '{"output":"Read-only file system","metadata":{"exit_code":2}}', "The sandbox stopped me"),
        ("check", '{"output":"passed","metadata":{"exit_code":0}}', "That worked"),
        ("check", '{"output":"failed","metadata":{"exit_code":1}}', "Say `repair`"),
    ],
)
def test_the_model_reacts(said: str, told: str, words: str) -> None:
    events = DemoModel()({"input": [user(said), output(told)]}).events
    assert words in "".join(event.get("delta", "") for event in events)


def played(root: Path) -> Played:
    """Return a whole demo, as far as its checks look at it."""
    model = ScriptedModel(DemoModel())
    entered = [user(line) for line in (*FIRST, *SECOND) if not line.startswith("/")]
    model.requests.append({"input": [*entered, output("passed: Hello, World!")]})
    place = DemoWorkspace(root, {}, model)
    (place.home / "sessions").mkdir(parents=True)
    place.repository.mkdir()
    (place.repository / "greet.sh").write_text(REPAIRED)
    lines = ["session_meta", *["event_msg"] * 20]
    rollout = "\n".join(json.dumps({"type": line}) for line in lines)
    (place.home / "sessions" / "rollout-1.jsonl").write_text(rollout)
    return Played(place, [0, 0], approved=True)


def failed(play: Played) -> list[str]:
    return [what for what, happened in play.checks() if not happened]


def test_a_whole_demo_passes(tmp_path: Path) -> None:
    play = played(tmp_path)
    assert failed(play) == []
    assert len([*play.checks()]) == 6


def test_each_check_can_fail(tmp_path: Path) -> None:
    play = played(tmp_path)
    (play.workspace.repository / "greet.sh").write_text(FILES["greet.sh"])
    play.workspace.outside.write_text("repaired")
    (play.workspace.home / "sessions" / "rollout-1.jsonl").write_text('{"type": "event_msg"}')
    play.workspace.model.requests[:] = [{"input": [user("check"), output("failed: expected")]}]
    play.statuses[:] = [0, -9]
    assert len(failed(play)) == 6
    play.approved = False
    assert len(failed(play)) == 4
