"""The number of server modules that a warm turn without tools enters: the code that its reader has to know."""

import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType

import pytest

import app_server
from tests.support.editor import opened
from tests.support.scripted_model import reply, says
from tests.support.thread_client import say
from tests.support.world import MakeWorld, World

pytestmark = pytest.mark.scenario

PRODUCT = Path(app_server.__file__).parent.parent
TURNS = 6


@contextmanager
def modules_entered() -> Iterator[set[str]]:
    """Collect the modules of the product in which a function is called."""
    codes: set[CodeType] = set()

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            codes.add(frame.f_code)

    entered: set[str] = set()
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield entered
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
        for code in list(codes):  # a copy: threads may still note a last call
            path = Path(code.co_filename)
            parts = path.relative_to(PRODUCT).parts if path.is_relative_to(PRODUCT) else ("",)
            # The demo has the scripted model.
            if parts[0] in ("app_server", "protocol") and parts[1] != "demo":
                entered.add("/".join(parts))


async def conversation_turns(w: World) -> Callable[[], Awaitable[object]]:
    conversation = await w.open()
    return lambda: w.client.turn(conversation, "hi")


async def thread_turns(w: World) -> Callable[[], Awaitable[object]]:
    started = await w.client.call("thread/start", {"cwd": str(w.workspace)})
    return lambda: say(w.client, started["thread"]["id"])


async def session_turns(w: World) -> Callable[[], Awaitable[object]]:
    editor, session = await opened(w)
    return lambda: editor.ends(session)


@pytest.mark.parametrize(
    ("turns", "acp", "most"),
    [(conversation_turns, False, 102), (thread_turns, False, 118), (session_turns, True, 113)],
    ids=["conversations", "threads", "sessions"],
)
async def test_a_warm_turn_enters_few_modules(
    world: MakeWorld,
    turns: Callable[[World], Awaitable[Callable[[], Awaitable[object]]]],
    acp: bool,
    most: int,
) -> None:
    fewest: set[str] = set()
    async with world(*[reply(says("hello"))] * TURNS, acp=acp) as w:
        turn = await turns(w)
        for _ in range(TURNS):  # background work of the first turns does not belong to the turn
            with modules_entered() as entered:
                await turn()
            fewest = min(fewest or entered, entered, key=len)
    assert len(fewest) <= most, sorted(fewest)
