"""The code that a warm turn without tools runs, which its reader has to know: its modules, its functions, and the road
of the user's message from the line to the request to the model.
"""

import re
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType

import pytest

import app_server
from app_server_protocol.engine.events import ItemStarted, ItemTextGrown
from tests.support.editor import opened
from tests.support.scripted_model import Hold, begins_to_say, reply, says, word
from tests.support.thread_client import say
from tests.support.world import MakeWorld, World

pytestmark = pytest.mark.scenario

PRODUCT = Path(app_server.__file__).parent.parent
TURNS = 6


@contextmanager
def calls_noted(note: Callable[[FrameType], None]) -> Iterator[None]:
    """Call `note` with the frame of each call on the thread of the event loop. Which calls are seen on other threads
    would depend on when these were started.
    """

    def profile(frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            note(frame)

    sys.setprofile(profile)
    try:
        yield
    finally:
        sys.setprofile(None)


def of_server(code: CodeType) -> bool:
    """Return whether code is a part of the server; the demo, which has the scripted model, and the client are none."""
    path = Path(code.co_filename)
    parts = path.relative_to(PRODUCT).parts if path.is_relative_to(PRODUCT) else ("",)
    return parts[0] == "protocol" or (parts[0] == "app_server" and parts[1] in ("engine", "server"))


@contextmanager
def functions_entered() -> Iterator[set[tuple[str, str]]]:
    """Collect the functions of the server that are called, by module and name. A comprehension, a generator expression
    or a lambda is a part of the function that has it.
    """
    codes: set[CodeType] = set()
    entered: set[tuple[str, str]] = set()
    with calls_noted(lambda frame: codes.add(frame.f_code)):
        yield entered
    for code in codes:
        if of_server(code):
            module = Path(code.co_filename).relative_to(PRODUCT).as_posix()
            entered.add((module, re.sub(r"(\.<locals>)?\.?<(?!locals).*", "", code.co_qualname)))


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
    ("turns", "acp", "modules", "functions"),
    [
        (conversation_turns, False, 80, 383),
        (thread_turns, False, 94, 444),
        (session_turns, True, 90, 421),
    ],
    ids=["conversations", "threads", "sessions"],
)
async def test_a_warm_turn_enters_few_modules_and_functions(
    world: MakeWorld,
    turns: Callable[[World], Awaitable[Callable[[], Awaitable[object]]]],
    acp: bool,
    modules: int,
    functions: int,
) -> None:
    fewest: set[tuple[str, str]] = set()
    async with world(*[reply(says("hello"))] * TURNS, acp=acp) as w:
        turn = await turns(w)
        for _ in range(TURNS):  # background work of the first turns does not belong to the turn
            with functions_entered() as entered:
                await turn()
            fewest = min(fewest or entered, entered, key=len)
    entered_modules = {module for module, _ in fewest}
    assert len(entered_modules) <= modules, sorted(entered_modules)
    assert len(fewest) <= functions, sorted(fewest)


READ, WRITE = "StdioTransport.lines", "StdioTransport.write"
"""Source of the lines and the target of bytes, which a transport in memory replaces here."""
STREAM = "EventStream.__anext__"
"""Source of the model's events."""

ROAD = (
    ("Connection.serve", "Connection._receive", "Lanes.start"),
    (
        *("Lanes.run_in", "Connection._serve_request", "MethodRouter._serve", "turn_start"),
        *("TurnControl.start", "OperationQueue.submit"),
    ),
    ("Session._serve", "perform", "TaskRunner.start"),
    (
        *("TaskRunner._run", "RegularTask.run", "TurnLoop.run"),
        *("ModelCall.request", "ModelCall._stream"),
        *("ModelClient.stream", "ModelClient._send", "HttpTransport.send"),
    ),
)
"""The calls that pass a user's message on, by task; the last call of a task makes the next task run."""

ROAD_OUT = (
    (
        *("ModelCall._stream", "ModelCall._take", "ReplyAssembler.text_delta", "TurnEmitter.grow"),
        *("Outbox.emit", "ReleasedEvents.put"),
    ),
    ("Pump.run", "Pump.send", "ApiChannel.send", "Client.send", "OutboundQueue.send_text"),
    ("OutboundQueue.write_queued",),
)
"""The calls that pass a text delta of the model on, by task."""


def callers(frame: FrameType) -> Iterator[str]:
    """Yield the functions of the server that wait for a call, its own first."""
    caller: FrameType | None = frame
    while caller is not None:
        if of_server(caller.f_code):
            yield caller.f_code.co_qualname
        caller = caller.f_back


async def test_a_message_passes_few_functions_on_its_way_to_the_model(world: MakeWorld) -> None:
    passed: dict[str, list[str]] = {}
    ends = {part[-1] for part in ROAD}

    def note(frame: FrameType) -> None:
        name = frame.f_code.co_qualname
        if name in ends and name not in passed and of_server(frame.f_code):
            passed[name] = list(callers(frame))[::-1]

    async with world(*[reply(says("hello"))] * 3) as w:
        turn = await thread_turns(w)
        await turn()
        with calls_noted(note):
            await turn()
    # The tasks of a connection have the calls of its server before the first.
    assert tuple(tuple(passed[part[-1]][-len(part) :]) for part in ROAD) == ROAD
    assert passed["HttpTransport.send"] == list(ROAD[-1])


@pytest.mark.parametrize(
    ("turns", "acp"),
    [(conversation_turns, False), (thread_turns, False), (session_turns, True)],
    ids=["conversations", "threads", "sessions"],
)
async def test_a_text_delta_passes_few_functions_on_its_way_to_the_client(
    world: MakeWorld, turns: Callable[[World], Awaitable[Callable[[], Awaitable[object]]]], acp: bool
) -> None:
    """The road is that of a delta before which nothing has to be stored, to a client that keeps up."""
    passed: dict[str, list[str]] = {}
    hold = Hold()

    def note(frame: FrameType) -> None:
        name, given = frame.f_code.co_qualname, frame.f_locals
        event = getattr(given.get("event"), "event", None)
        if name == "ReleasedEvents.put" and isinstance(event, ItemStarted):
            hold.release()  # all that is to be stored before the delta is stored
        is_delta = isinstance(event, ItemTextGrown) or name == "OutboundQueue.send_text"
        is_written = name == "MemoryTransport.write" and b"streamed" in given["data"]
        if (is_delta or is_written) and name not in passed and of_server(frame.f_code):
            passed[name] = list(callers(frame))[::-1]

    streamed = reply(begins_to_say(), hold, word("streamed"), says("streamed"))
    async with world(reply(says("hello")), streamed, acp=acp) as w:
        turn = await turns(w)
        await turn()
        with calls_noted(note):
            await turn()
    first, second, last = ROAD_OUT
    assert tuple(passed["ReleasedEvents.put"][-len(first) :]) == first
    assert tuple(passed["OutboundQueue.send_text"][-len(second) :]) == second
    assert tuple(passed["MemoryTransport.write"][-len(last) - 1 :]) == (*last, "MemoryTransport.write")


@pytest.mark.parametrize(
    ("step", "road", "words"),
    [
        (
            "1. ",
            [READ, *(name for part in ROAD for name in part)],
            "passes {} functions from the line to the request",
        ),
        (
            "9. ",
            [STREAM, *(name for part in ROAD_OUT for name in part), WRITE],
            "passes {} functions from the event",
        ),
    ],
    ids=["in", "out"],
)
def test_the_map_names_each_of_these_functions_in_their_order(step: str, road: list[str], words: str) -> None:
    text = (
        (PRODUCT / "ARCHITECTURE.md")
        .read_text("utf-8")
        .partition("## One turn")[2]
        .partition("## The rooms")[0]
    )
    steps = text[text.index(f"\n{step}") :]
    named = [name for name in re.findall(r"`([\w.]+)`", steps) if name in road]
    assert named[: len(road)] == road
    assert words.format(len(road)) in text
