"""The notify program: its argument, its start, and that nothing is left of it."""

import json
import logging
import os
import resource
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.engine.telemetry import notify
from tests.support.waiting import until

WRITE = "import json,os,sys; open(sys.argv[1],'w').write(json.dumps([sys.argv[2:], dict(os.environ), os.getsid(0)]))"
KEEP = ("/bin/sh", "-c", 'printf %s "$1" > "$0.part" && mv "$0.part" "$0"')
"""Command that stores the message atomically, under the name that follows."""
ENV = {"PATH": os.environ.get("PATH", os.defpath), "MINE": "1"}


async def content(path: Path) -> str:
    await until(lambda: path.exists() and bool(path.read_text()))
    return path.read_text()


def test_the_message_is_spelled_with_dashes() -> None:
    message = notify.turn_complete("thread", "3", "/ws", ["Rename it", "and ü"], "Done.")
    assert message == (
        '{"type":"agent-turn-complete","thread-id":"thread","turn-id":"3","cwd":"/ws",'
        '"input-messages":["Rename it","and ü"],"last-assistant-message":"Done."}'
    )


def test_without_a_last_message_there_is_null() -> None:
    assert json.loads(notify.turn_complete("t", "1", "/", [], None))["last-assistant-message"] is None


@given(st.lists(st.text(max_size=300)), st.text(max_size=300))
def test_every_message_fits_into_an_argument(inputs: list[str], last: str) -> None:
    message = notify.turn_complete("t", "1", "/ws", [text * 500 for text in inputs], last * 500)
    for limit in notify.LIMITS:
        told = notify.fit(message, limit)
        assert len(told.encode()) <= limit
        assert "\0" not in told
        notice = json.loads(told)
        assert notice.keys() == json.loads(message).keys()
        assert notice["turn-id"] == "1"
        for text, whole in zip(notice["input-messages"], inputs, strict=False):
            assert text == notify.ELLIPSIS or (whole * 500).startswith(text.removesuffix(notify.ELLIPSIS))


def test_a_message_that_fits_is_passed_unchanged() -> None:
    message = notify.turn_complete("t", "1", "/ws", ["a\0b \\u0000"] * 300, "done")
    assert notify.fit(message, notify.MAX_ARGUMENT_BYTES) == message
    assert json.loads(message)["input-messages"][299] == "a\0b \\u0000"


async def test_a_message_over_the_systems_limit_arrives_shortened(tmp_path: Path) -> None:
    target = tmp_path / "told"
    message = notify.turn_complete("t", "1", "/ws", ["ü" * 100_000, "short"], "x" * 100_000)
    await notify.NotifyProgram((*KEEP, str(target))).notify(message, ENV)
    notice = json.loads(await content(target))
    first, second = notice["input-messages"]
    assert first.endswith(notify.ELLIPSIS)
    assert len(first) > 10_000
    assert second == "short"
    assert notice["last-assistant-message"].endswith(notify.ELLIPSIS)


async def test_a_long_environment_leaves_a_shorter_message(tmp_path: Path) -> None:
    """Arguments and environment together are limited, too: to a quarter of the stack."""
    target = tmp_path / "told"
    soft, _ = resource.getrlimit(resource.RLIMIT_STACK)
    room = 6 << 20 if soft == resource.RLIM_INFINITY else soft // 4
    size = 100_000
    filler = {f"F{number}": "x" * size for number in range((room - 30_000) // (size + 20))}
    rest = room - sum(len(name) + size + 10 for name in filler) - 30_000
    environment = {**ENV, **filler, "REST": "x" * max(rest, 0)}
    message = notify.turn_complete("t", "1", "/ws", ["y" * 200_000], None)
    await notify.NotifyProgram((*KEEP, str(target))).notify(message, environment)
    text = json.loads(await content(target))["input-messages"][0]
    assert text.endswith(notify.ELLIPSIS)
    assert len(text) <= 15_000


async def test_the_program_gets_the_message_last_and_the_users_environment(tmp_path: Path) -> None:
    target = tmp_path / "told"
    program = notify.NotifyProgram((sys.executable, "-c", WRITE, str(target), "own"))
    await program.notify('{"a":1}', ENV)
    arguments, environment, session = json.loads(await content(target))
    assert arguments == ["own", '{"a":1}']
    assert {key: value for key, value in environment.items() if key in (*ENV, "OPENAI_API_KEY")} == ENV
    assert session != os.getsid(0)


async def test_the_program_runs_nothing_of_the_folder_that_the_server_was_started_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted, target = tmp_path / "planted", tmp_path / "told"
    (tmp_path / "json.py").write_text(f"open({str(planted)!r}, 'w')\nfrom os import *\n")
    monkeypatch.chdir(tmp_path)
    await notify.NotifyProgram((sys.executable, "-c", WRITE, str(target))).notify("{}", ENV)
    await content(target)
    assert not planted.exists()


async def test_the_turn_does_not_wait_and_no_zombie_is_left(tmp_path: Path) -> None:
    target, gate = tmp_path / "pid", tmp_path / "gate"
    os.mkfifo(gate)
    script = f"echo $$ > {target}; read line < {gate}"
    await notify.NotifyProgram(("/bin/sh", "-c", script)).notify("{}", ENV)
    pid = int(await content(target))
    gate.write_text("go\n")
    await until(lambda: not Path(f"/proc/{pid}").exists())  # the path also exists for a zombie


async def test_a_program_that_cannot_be_started_is_only_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        await notify.NotifyProgram(("/no/such/program",)).notify('{"secret":1}', ENV)
        await notify.NotifyProgram(("a\0b",)).notify("{}", ENV)
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    assert "secret" not in caplog.text


async def test_programs_that_hang_do_not_pile_up(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    gate, count = tmp_path / "gate", tmp_path / "count"
    os.mkfifo(gate)
    program = notify.NotifyProgram(("/bin/sh", "-c", f"echo x >> {count}; read line < {gate}"))
    for _ in range(notify.MAX_RUNNING + 1):
        await program.notify("{}", ENV)
    await until(lambda: count.exists() and len(count.read_text().splitlines()) == notify.MAX_RUNNING)
    assert "still run" in caplog.text
    descriptor = os.open(gate, os.O_RDWR)
    os.write(descriptor, b"go\n" * notify.MAX_RUNNING)
    await until(lambda: all(process.poll() is not None for process in program._running))
    os.close(descriptor)


async def test_without_a_command_nothing_is_started() -> None:
    program = notify.NotifyProgram(())
    await program.notify("{}", ENV)
    assert program._running == []
