"""The chat in a terminal: what is typed, what is shown, and the keys."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import anyio.to_thread
import pytest

from tests.support.scripted_model import Hold, begins_to_say, patches, reply, runs, says, word
from tests.support.terminal import Terminal
from tests.support.world import SCRIPT, MakeWorld, World, worlds_in

pytestmark = pytest.mark.anyio

T = TypeVar("T")
CTRL_C = "\x03"
PATCH = "*** Begin Patch\n*** Add File: made.txt\n+by the chat\n*** End Patch"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def world(tmp_path: Path) -> MakeWorld:
    return worlds_in(tmp_path)


def terminal(w: World, *arguments: str, columns: int = 90) -> Terminal:
    command = (SCRIPT, "chat", "-a", "untrusted", *arguments)
    return Terminal(command, environment=w.environment, cwd=w.workspace, columns=columns)


async def played(play: Callable[[], T]) -> T:
    """In a thread, while the model is served here."""
    return await anyio.to_thread.run_sync(play)


async def test_a_message_a_command_that_is_allowed_and_a_patch_that_is_not(world: MakeWorld) -> None:
    replies = (
        reply(says("# Title\n\nSome *words*.")),
        reply(runs("sh", "-c", "seq 20 > out.txt; seq 20")),
        reply(patches(PATCH, "c2")),
        reply(says("All done.")),
    )
    async with world(*replies, initialize=False) as w:

        def play() -> str:
            with terminal(w) as t:
                t.wait_for("0 tokens")
                t.say("hello")
                t.wait_for("Some words.")
                t.say("go on")
                t.wait_for("[y] yes")
                t.press("y")
                t.wait_for("8 lines more")
                t.wait_for("Apply this patch to 1 files?")
                t.wait_for("+by the chat")
                t.press("n")
                shown = t.wait_for("All done.")
                t.say("/quit")
                assert t.wait_for_end() == 0
                return shown

        shown = await played(play)
        assert "the patch was declined" in shown
        assert (w.workspace / "out.txt").exists()
        assert not (w.workspace / "made.txt").exists()


async def test_typing_joins_the_turn_and_ctrl_c_interrupts_it(world: MakeWorld) -> None:
    hold = Hold()
    slow = reply(begins_to_say(), word("thinking"), hold, says("late"))
    async with world(slow, initialize=False) as w:

        def play() -> None:
            with terminal(w) as t:
                t.wait_for("0 tokens")
                t.say("take your time")
                t.wait_for("working")
                t.say("and hurry")
                t.wait_for("… and hurry")
                t.press(CTRL_C)
                t.wait_for("interrupted")
                t.press(CTRL_C + CTRL_C)
                assert t.wait_for_end() == 0

        await played(play)


async def test_a_thread_is_found_and_gone_on_with_in_a_narrow_terminal(world: MakeWorld) -> None:
    wide = "日本語 und ümlaute 🙂"
    async with world(reply(says(wide)), reply(says("again")), initialize=False) as w:

        def play() -> None:
            with terminal(w, columns=40) as t:
                t.wait_for(">")
                t.say("say something wide")
                t.wait_for("ümlaute")
                t.say("/new")
                t.wait_for("a new thread")
                t.say("/resume wide")
                t.wait_for("say something wide", 2)
                t.say("/resume 1")
                t.wait_for("ümlaute", 2)
                t.resize(100, 20)
                t.say("more")
                t.wait_for("again")
                t.press("\x04")
                assert t.wait_for_end() == 0

        await played(play)
        assert len(w.rollouts()) == 2


async def test_slash_commands_say_what_there_is(world: MakeWorld) -> None:
    async with world(initialize=False) as w:

        def play() -> None:
            with terminal(w) as t:
                t.wait_for("0 tokens")
                for line, answer in (
                    ("/status", "stored in"),
                    ("/nothing", "unknown command /nothing"),
                    ("/approvals never", "from the next turn on: never"),
                    ("/sandbox read-only", "from the next turn on: read-only"),
                    ("/mcp", "no MCP server is configured"),
                    ("/diff", "changed no files"),
                    ("!echo from the user", "from the user"),
                ):
                    t.say(line)
                    t.wait_for(answer)
                t.wait_for("never · readOnly")
                t.say("/quit")
                assert t.wait_for_end() == 0

        await played(play)


async def test_a_denied_command_ends_the_turn_with_a_reason(world: MakeWorld) -> None:
    replies = (reply(runs("touch", "no.txt")), reply(says("I see.")))
    async with world(*replies, initialize=False) as w:

        def play() -> None:
            with terminal(w) as t:
                t.wait_for("0 tokens")
                t.say("touch it")
                t.wait_for("[s] stop")
                t.press("s")
                t.wait_for("interrupted")
                t.say("because I said so")
                t.wait_for("I see.")
                t.say("/quit")
                assert t.wait_for_end() == 0

        await played(play)
        assert not (w.workspace / "no.txt").exists()
        assert "because I said so" in "\n".join(w.model_saw())
