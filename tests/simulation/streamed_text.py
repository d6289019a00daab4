"""Text that streams when a server is killed: what people were shown of it in time is there when its thread goes on."""

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from protocol.structs import Json
from tests.simulation.journal import Entry
from tests.simulation.stored import rollout_of

if TYPE_CHECKING:
    from tests.simulation.people import Person
    from tests.simulation.sim_world import SimWorld

KEPT_WITHIN = 0.25
"""Virtual seconds for which text may be lost; a world's messages are too short for the other bound, 4 KiB."""


def note_what_streams(world: "SimWorld") -> None:
    """Note the text that has to be kept, as a server is killed. Where nothing runs for some time (a slow disk, a clock
    that jumps), nothing is written either.
    """
    habits = world.habits
    if not (world.loses_lines or habits.clock_jumps or any(habits.slow_disk)):
        # Who has left was not told what became of the text.
        there = {person.name for person in world.people if person.left_at is None}
        heard = (each for each in world.model.journal.entries if each.who in there and not each.sent)
        for thread, text in _open_text(heard, world.loop.time() - KEPT_WITHIN):
            world.model.note("killed while text streams")
            if habits.api != "v1" or not _is_cut(rollout_of(world.root / "killed", thread), text):
                world.streamed.setdefault(thread, set()).add(text)


def _is_cut(path: Path | None, text: str) -> bool:
    """Tell whether a message is stored as one that an interrupt cut off, which the conversation API shows nobody who
    comes later.
    """
    lines = path.read_bytes().splitlines() if path is not None else ()
    return any(b'"cut":true' in line and _begin_of_a_text(text).encode() in line for line in lines)


def _open_text(heard: Iterable[Entry], until: float) -> Iterator[tuple[str, str]]:
    """Yield the text of messages that have not ended, as clients were shown it until then, with the thread."""
    texts: dict[tuple[str, str], tuple[str, str]] = {}
    for entry in heard:
        params = entry.message.get("params") or {}
        match entry.message.get("method"):
            case "item/agentMessage/delta":
                thread, item, delta = params["threadId"], params["itemId"], params["delta"]
            case "codex/event/agent_message_content_delta":
                msg = params["msg"]
                thread, item, delta = msg["thread_id"], f"v1 {msg['item_id']}", msg["delta"]
            case "item/started" if text := params["item"].get("text"):  # for who joins
                thread, item, delta = params["threadId"], params["item"]["id"], text
            case "item/completed":
                texts.pop((entry.who, params["item"]["id"]), None)
                continue
            case "codex/event/item_completed":
                for old in params["msg"]["item"].values():
                    texts.pop((entry.who, f"v1 {old['id']}"), None)
                continue
            case "codex/event/turn_aborted" | "codex/event/task_complete" | "codex/event/stream_error":
                # The conversation API does not tell of the end of a message that an interrupt or a retry cut off.
                over = params["conversationId"]
                texts = {key: each for key, each in texts.items() if (key[0], each[0]) != (entry.who, over)}
                continue
            case _:
                continue
        if entry.seconds <= until:
            _, before = texts.get((entry.who, item), (thread, ""))
            texts[entry.who, item] = thread, before + delta
    yield from ((thread, text) for thread, text in texts.values() if text)


def lost_text(world: "SimWorld", person: "Person", thread: str, opened: int) -> Iterator[str]:
    """Yield the text that who has resumed a thread was not shown. `opened`: the length of the log before."""
    if thread not in world.record.reverted:
        shown = [json.dumps(message) for message in person.received_since(opened)]
        for text in sorted(world.streamed.get(thread, ())):
            if not any(_begin_of_a_text(text) in each for each in shown):
                yield f"{thread} does not show what was streaming when the server was killed: {text!r}"


def unsent_text(world: "SimWorld", thread: str, input: Sequence[Json]) -> Iterator[str]:
    """Yield the text that the first request behind a kill does not have."""
    if thread not in world.record.reverted:
        for text in sorted(world.streamed.get(thread, ())):
            if _begin_of_a_text(text) not in json.dumps(input):
                yield f"{thread} goes on without what was streaming when the server was killed: {text!r}"


def _begin_of_a_text(text: str) -> str:
    return json.dumps(text)[:-1]
