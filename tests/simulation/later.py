"""Later servers: each stored thread can be resumed in one, any beginning of a thread can be resumed, and all APIs show
the same history.
"""

import json
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from app_server.engine.storage.rollout_names import conversation_of
from tests.simulation.going_back import GoingBack
from tests.simulation.people import APIS, Person
from tests.simulation.sayings import marks
from tests.simulation.stored import rollout_of, rollouts
from tests.simulation.streamed_text import lost_text, unsent_text
from tests.simulation.thread_person import ThreadPerson
from tests.support.thread_invariants import is_reverted, stored_items

if TYPE_CHECKING:
    from tests.simulation.sim_world import SimWorld

SAID = re.compile(r"^(w\d+) (?:please|again)")
"""Beginning of the messages of people."""


async def second_server(world: "SimWorld") -> None:
    """Resume every thread in a second server and play one more turn."""
    async with world.server(world.habits.api) as person:
        await person.begin()
        for thread in dict.fromkeys(world.record.threads):
            if thread not in world.record.gone and is_stored(world.home, thread):
                world.problems += await _one_more_turn(world, person, thread)
                if isinstance(person, ThreadPerson) and world.habits.goes_back:
                    await GoingBack(person, thread).finish()


async def _one_more_turn(world: "SimWorld", person: Person, thread: str) -> list[str]:
    opened = len(person.log)
    told = await person.history(thread)
    if told is None:
        return [f"thread {thread} cannot be resumed"]
    if lost := list(lost_text(world, person, thread, opened)):
        return lost
    word = world.record.new_word()
    turn = await person.say(thread, f"{word} again")
    if turn is None:
        return [f"a resumed thread takes no words: {thread}"]
    world.record.words[word] = await person.ended(thread, turn)
    person.settle()
    if _had_no_room(world, word):
        return []
    if world.record.words[word] != "completed":
        return [f"the turn of a resumed thread ended as {world.record.words[word]}"]
    path = rollout_of(world.home, thread)
    assert path is not None
    if b'"type":"compacted"' in path.read_bytes() or world.loses_lines:
        return []  # the model gets a summary, or some messages could not be stored
    asked = [request for request in world.model.requests if word in _words(request.texts())]
    if asked and (unsent := list(unsent_text(world, thread, asked[0].input))):
        return unsent
    heard = _words(asked[0].texts()) if asked else []
    shown = [*(each for each in told if each.startswith("w") and not _had_no_room(world, each)), word]
    heard = [each for each in heard if each in shown or each not in world.record.said_in_old_words]
    return [] if heard == shown else [f"{thread} shows the words {shown}, and the model got {heard}"]


def _had_no_room(world: "SimWorld", word: str) -> bool:
    """Return whether the turn of a word failed before a request: its message did not fit into a small window, and is
    not in the history.
    """
    if world.habits.context_window is None or world.record.words.get(word) == "completed":
        return False
    return not any(word in _words(request.texts()) for request in world.model.requests)


def _words(texts: Sequence[str]) -> list[str]:
    return [found[1] for text in texts if (found := SAID.match(text))]


async def all_tell_the_same(world: "SimWorld") -> None:
    """Read every stored thread over each API and compare the histories."""
    told: dict[str, dict[str, list[str] | None]] = {}
    for api in APIS:
        async with world.server(api) as person:
            await person.begin()
            for thread in dict.fromkeys(world.record.threads):
                if thread not in world.record.gone and is_stored(world.home, thread):
                    told.setdefault(thread, {})[api] = await person.history(thread)
    for thread, by_api in told.items():
        threads, editor, old = by_api["v2"], by_api["acp"], by_api["v1"]
        whole = set(_whole_messages(rollout_of(world.home, thread)))
        if threads != editor or old != [each for each in threads or () if each in whole]:
            world.problems.append(f"the APIs do not tell the same of {thread}: {by_api}")


def _whole_messages(path: Path | None) -> Iterator[str]:
    """Return the marks of messages that no interrupt cut off. The conversation API shows no others. In the newer form
    of files an item tells whether it was cut, and events for older readers repeat it.
    """
    lines = path.read_bytes().splitlines() if path is not None else ()
    for line in lines:
        with suppress(ValueError):
            whole = json.loads(line)
            payload, item = whole["payload"], None
            if payload.get("type") == "item_completed" and (
                not payload.get("cut") or payload.get("by_crash")
            ):
                item = payload.get("item")
            if "ordinal" not in whole and payload.get("type") in ("user_message", "agent_message"):
                yield from marks([payload["message"]])
            elif item and item["type"] in ("UserMessage", "AgentMessage"):
                yield from marks([part.get("text", "") for part in item["content"]])


async def beginning(world: "SimWorld") -> None:
    """Cut a stored thread at any byte, often between two lines, and play one more turn after that."""
    draws = world.draws
    found = rollouts(world.home / "sessions")
    paths = [path for path in found if _is_json(path.read_bytes().split(b"\n")[0])]
    if not paths:
        return
    path = draws.pick("thread that is cut", paths)
    thread = conversation_of(path.name, "")
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    kept = 1 + draws.below("lines that are kept", len(lines))
    torn = b""
    if kept < len(lines) and draws.chance("cut in a line", 0.5):
        torn = lines[kept][: draws.below("bytes of the line", len(lines[kept]))]
    home = world.root / "cut"
    shutil.copytree(world.home, home, symlinks=True)
    cut = home / path.relative_to(world.home)
    cut.write_bytes(b"".join(lines[:kept]) + torn)
    before, after = list(stored_items(thread, path)), list(stored_items(thread, cut))
    # A command on a terminal belongs to the turn in which it began, and is stored when it ends.
    # If a client joins a running turn, its begin is stored late; lines that were stored before have no id of a turn.
    late = b'"late":true' in whole
    if not late and not is_reverted(path) and [each for each in before if each in set(after)] != after:
        world.problems.append(f"{kept} lines of {thread} show {after}, the whole file {before}")
    async with world.server(draws.pick("api of a cut thread", APIS), home) as person:
        await person.begin()
        if await person.history(thread) is None:
            world.problems.append(f"{kept} lines of {thread} cannot be resumed")
        else:
            word = world.record.new_word()
            turn = await person.say(thread, f"{word} again")
            world.record.words[word] = "refused" if turn is None else await person.ended(thread, turn)
            person.settle()
            if world.record.words[word] != "completed":
                state = world.record.words[word]
                world.problems.append(f"a turn behind {kept} lines of {thread} ended as {state}")
    damaged = sum(not _is_json(line) for line in cut.read_bytes().splitlines())
    if damaged > sum(not _is_json(line) for line in [*lines[:kept], torn] if line):
        world.problems.append(f"a turn behind {kept} lines of {thread} damaged others")
    shutil.rmtree(home)


def _is_json(line: bytes) -> bool:
    with suppress(ValueError):
        json.loads(line)
        return True
    return False


def is_stored(home: Path, thread: str) -> bool:
    """Return whether the beginning of a thread is on the disk. It may be missing where writes fail."""
    path = rollout_of(home, thread)
    return path is not None and any(_is_json(line) for line in path.read_bytes().split(b"\n")[:2])
