"""The demo's parts without a server: decisions, display, and the scripted model."""

import io
import os
import pty
from pathlib import Path

import anyio
import pytest

from app_server.cli.demo import demo_script
from app_server.cli.demo.screen import Person, Screen
from app_server_protocol.encoding import Json


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def plain() -> tuple[Screen, io.StringIO]:
    stream = io.StringIO()
    return Screen(stream, {}), stream


def test_nothing_of_others_drives_the_terminal() -> None:
    evil, stream = "\x1b[2J\x9b2J\u202e\rx", Terminal()
    screen = Screen(stream, {"NO_COLOR": "1"})
    for show in (screen.word, screen.diff, screen.user, screen.warning, screen.check, screen.failure):
        show(evil)
    screen.command([evil])
    screen.output(evil, evil)
    screen.note(evil, evil)
    assert not set(stream.getvalue()) & set("\x1b\x9b\u202e\r")


class Answered(io.StringIO):
    """Screen whose reader types when there is a question."""

    def __init__(self, keys: int, typed: str) -> None:
        super().__init__()
        self._keys, self._typed = keys, typed

    def write(self, text: str) -> int:
        if "[y/n]" in text:
            os.write(self._keys, self._typed.encode())
        return super().write(text)


@pytest.mark.parametrize(
    ("typed", "yes"), [("y\n", True), ("YES\n", True), ("n\n", False), ("\n", False), ("yeah\n", False)]
)
@pytest.mark.parametrize("before", ["", "y\n", "n", "yes"])
async def test_a_person_is_asked_at_a_terminal(before: str, typed: str, yes: bool) -> None:
    keyboard, terminal = pty.openpty()
    with os.fdopen(terminal, encoding="utf-8") as stdin, os.fdopen(keyboard, "wb", buffering=0) as keys:
        stream = Answered(keys.fileno(), typed)
        person = Person(Screen(stream, {}), stdin)
        keys.write(before.encode())  # these keys answer nothing
        with anyio.fail_after(60):
            assert await person.decide("May it?") is yes
    assert stream.getvalue().startswith("asked    May it? [y/n]")


async def test_nobody_says_no() -> None:
    screen, stream = plain()
    person = Person(screen, io.StringIO("y\n"))
    assert not await person.decide("May it?")
    assert "denied" in stream.getvalue()


def told(output: str) -> Json:
    return {"input": [{"type": "function_call_output", "call_id": "c", "output": output}]}


@pytest.mark.parametrize(
    ("scene", "output", "words"),
    [
        (2, "exec command rejected by user", "do not run it"),
        (2, '{"output":"failed","metadata":{"exit_code":1}}', "must be the first argument"),
        (3, "patch rejected by user", "stays as it is"),
        (3, '{"output":"Success.","metadata":{"exit_code":0}}', "Repaired"),
        (5, '{"output":"Read-only file system","metadata":{"exit_code":2}}', "The sandbox stopped me"),
        (5, '{"output":"","metadata":{"exit_code":0}}', "The note is written"),
        (7, "exec command rejected by user", "I cannot tell"),
        (7, '{"output":"passed","metadata":{"exit_code":0}}', "it passes"),
    ],
)
def test_the_model_reacts(scene: int, output: str, words: str, tmp_path: Path) -> None:
    told_by = demo_script.Script(outside=tmp_path, written=scene)
    said = [event.get("delta", "") for event in told_by(told(output)).events]
    assert words in "".join(said)
