"""A chat with frontend, server and scripted model in this process, in a terminal or in plain lines."""

import io
import json
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Protocol, TypedDict, Unpack

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup
from prompt_toolkit.application import get_app_session
from prompt_toolkit.output.vt100 import Vt100_Output
from rich.console import Console

from app_server.cli.chat.chat_conversation import NEW, ChatConversation, Opening, chat_session
from app_server.cli.chat.plain_chat import PlainChat, TypedLines
from app_server.cli.chat.terminal_chat import TerminalChat
from app_server.cli.chat.terminal_keys import RawInput
from app_server_protocol.encoding import Json
from tests.support.invariants import violated_invariants
from tests.support.library import RecordingConnector, connector_to, serving_model
from tests.support.scripted_model import Reply, ScriptedModel
from tests.support.terminal import Terminal
from tests.support.waiting import PATIENCE


@dataclass(slots=True)
class ChatWorld:
    root: Path
    model: ScriptedModel

    @property
    def workspace(self) -> Path:
        return self.root / "workspace"

    def rollouts(self) -> list[Path]:
        return sorted((self.root / "home").glob("sessions/**/rollout-*.jsonl"))

    def model_saw(self) -> str:
        """Return everything that the model was sent, as one text."""
        return json.dumps([request.input for request in self.model.requests])


Play = Callable[[Terminal], None]
"""Function that types what a person types at the prompt, before leaving. It is called in a thread."""

CTRL_D, CTRL_U = "\x04", "\x15"


SECOND, INSTANT = 1.0, 0.001
"""Advance of a test chat's clock at each reading, in seconds. With SECOND a question counts as seen by the next typed
input, with INSTANT it does not.
"""


class Setting(TypedDict, total=False):
    """Options in which one chat differs from another."""

    columns: int
    rows: int
    tick: float
    dumb: bool
    opening: Opening
    environment: Mapping[str, str]
    config: Json
    tables: str
    offered: Sequence[str]
    """Models that the provider lists."""


class PlayChat(Protocol):
    async def __call__(self, play: Play, *replies: Reply, **setting: Unpack[Setting]) -> ChatWorld: ...


def chats_in(root: Path) -> PlayChat:
    async def played(play: Play, *replies: Reply, **setting: Unpack[Setting]) -> ChatWorld:
        with Terminal(setting.get("columns", 90), setting.get("rows", 30)) as terminal:
            async with (
                _world(root, replies, setting.get("config"), setting.get("tables", "")) as (world, connector),
                _chatting(connector, world, terminal, setting) as left,
            ):
                world.model.offered = setting.get("offered", ())
                await anyio.to_thread.run_sync(_play_to_the_end, play, terminal, left, setting)
        return world

    return played


async def chat_of_lines(
    root: Path,
    lines: str,
    *replies: Reply,
    config: Json = None,
    opening: Opening = NEW,
    tables: str = "",
) -> str:
    """Return the output of a chat that runs without a terminal and reads these lines as its input."""
    typed = root / "typed"
    typed.write_text(lines)

    async def frontend(chat: ChatConversation, group: TaskGroup, home: Path | None) -> None:
        with typed.open() as stdin:
            await PlainChat(chat, home, TypedLines(stdin), time.monotonic).run()

    output = io.StringIO()
    async with _world(root, replies, config, tables) as (world, connector):
        console, home = Console(file=output), root / "home"
        await chat_session(connector, console, frontend, world.workspace, home, opening)
    return output.getvalue()


@asynccontextmanager
async def _world(
    root: Path, replies: Sequence[Reply], more: Json = None, tables: str = ""
) -> AsyncIterator[tuple[ChatWorld, RecordingConnector]]:
    for folder in ("home", "workspace", "user"):
        (root / folder).mkdir(exist_ok=True)
    world = ChatWorld(root, ScriptedModel(list(replies)))
    config: dict[str, Json] = {"approval_policy": "untrusted", **(more or {})}
    with anyio.fail_after(PATIENCE):
        async with serving_model(world.model, root, config, tables) as environment:
            connector = RecordingConnector(connector_to("in_process", root, environment))
            yield world, connector
    broken = violated_invariants(connector.record, world.model.requests, world.rollouts())
    assert not broken, "\n".join([*broken, *connector.record.tail()])


@asynccontextmanager
async def _chatting(
    connector: RecordingConnector,
    world: ChatWorld,
    terminal: Terminal,
    setting: Setting,
) -> AsyncIterator[threading.Event]:
    """Run a chat while the block runs; yield an event that is set when the chat has ended."""
    left, dumb = threading.Event(), setting.get("dumb", False)
    clock: Callable[[], float] = count(step=setting.get("tick", SECOND)).__next__
    environment, opening = setting.get("environment", {}), setting.get("opening", NEW)

    async def frontend(chat: ChatConversation, group: TaskGroup, home: Path | None) -> None:
        if dumb:
            await PlainChat(chat, home, TypedLines(keys), clock).run()
        else:
            await TerminalChat(chat, group, home, RawInput(keys), clock, environment).run()

    async def chat() -> None:
        console = Console(
            file=screen if dumb else None, force_terminal=not dumb, width=terminal.columns, highlight=False
        )
        try:
            await chat_session(connector, console, frontend, world.workspace, world.root / "home", opening)
        finally:
            left.set()

    with os.fdopen(os.dup(terminal.inner), "r") as keys, os.fdopen(os.dup(terminal.inner), "w") as screen:
        # The chat does not run in a session of its own: prompt_toolkit prints above the prompt in a thread that knows
        # only this one.
        get_app_session()._output = Vt100_Output.from_pty(screen, "xterm-256color")
        async with anyio.create_task_group() as group:
            group.start_soon(chat, name="the chat")
            yield left
            group.cancel_scope.cancel()


def _play_to_the_end(play: Play, terminal: Terminal, left: threading.Event, setting: Setting) -> None:
    if "opening" not in setting:  # such a chat shows and chooses its opening itself
        terminal.wait_for("/help" if setting.get("dumb") else "0 tokens")
    play(terminal)
    terminal.press(CTRL_D if setting.get("dumb") else CTRL_U + CTRL_D)
    for _ in range(1000):
        if left.wait(0.02):
            return
        terminal.read_on()
    raise AssertionError(f"the chat does not end:\n{terminal.text}")
