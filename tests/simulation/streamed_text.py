"""Text that streams when a server is killed: a thread that is resumed has the text that people were shown in time."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from app_server_protocol.encoding import Json
from tests.simulation.journal import Entry
from tests.simulation.stored import rollout_of

if TYPE_CHECKING:
    from tests.simulation.people import Person
    from tests.simulation.sim_world import SimWorld

KEPT_WITHIN = 0.25
"""Time within which text may be lost, in virtual seconds. The messages of a world are too short for the other bound, 4
KiB.
"""


def note_what_streams(world: "SimWorld") -> None:
    """Record the text that has to survive when a server is killed. Where nothing runs for some time (a slow disk, a
    clock that jumps), nothing is written either.
    """
    habits = world.habits
    if not (world.loses_lines or habits.clock_jumps or any(habits.slow_disk)):
        # A client that has left was not notified what became of the text.
        there = {person.name for person in world.people if person.left_at is None}
        heard = (each for each in world.model.journal.entries if each.who in there and not each.sent)
        clock_began = world.now() - world.loop.time()
        for open_text in _open_texts(heard, world.loop.time() - KEPT_WITHIN):
            world.model.note("killed while text streams")
            thread, since = open_text.thread, clock_began + open_text.since
            if habits.api != "v1" or not _is_cut(rollout_of(world.root / "killed", thread), since):
                world.streamed.setdefault(thread, set()).add(open_text.text)


def _is_cut(path: Path | None, since: float) -> bool:
    """Return whether anything was stored as cut off by an interrupt since that time, in seconds since 1970. The
    conversation API does not show such a message to clients that come later.
    """
    begin = datetime.fromtimestamp(since, UTC).isoformat(timespec="milliseconds")[:23].encode()
    lines = path.read_bytes().splitlines() if path is not None else ()
    cut = (line for line in lines if b'"turn_aborted"' in line or b'"cut":true' in line)
    return any(line.partition(b'"timestamp":"')[2][:23] >= begin for line in cut)


@dataclass(frozen=True, slots=True)
class _OpenText:
    """Text of an unfinished message as a client was shown it, and the time of its first piece."""

    thread: str
    since: float
    text: str = ""


def _open_texts(heard: Iterable[Entry], until: float) -> list[_OpenText]:
    """Return the unfinished messages, with the text that clients were shown until then."""
    texts: dict[tuple[str, str], _OpenText] = {}
    for entry in heard:
        params = entry.message.get("params") or {}
        match entry.message.get("method"):
            case "item/agentMessage/delta":
                thread, item, delta = params["threadId"], params["itemId"], params["delta"]
            case "codex/event/agent_message_content_delta":
                msg = params["msg"]
                thread, item, delta = msg["thread_id"], f"v1 {msg['item_id']}", msg["delta"]
            case "item/started" if text := params["item"].get("text"):  # for a client that joins
                thread, item, delta = params["threadId"], params["item"]["id"], text
            case "item/completed":
                texts.pop((entry.who, params["item"]["id"]), None)
                continue
            case "codex/event/item_completed":
                for old in params["msg"]["item"].values():
                    texts.pop((entry.who, f"v1 {old['id']}"), None)
                continue
            case "codex/event/turn_aborted" | "codex/event/task_complete" | "codex/event/stream_error":
                # The conversation API does not show the end of a message that an interrupt or a retry cut off.
                over = params["conversationId"]
                texts = {
                    key: each for key, each in texts.items() if (key[0], each.thread) != (entry.who, over)
                }
                continue
            case _:
                continue
        if entry.seconds <= until:
            before = texts.get((entry.who, item), _OpenText(thread, entry.seconds))
            texts[entry.who, item] = replace(before, text=before.text + delta)
    return [each for each in texts.values() if each.text]


def lost_text(world: "SimWorld", person: "Person", thread: str, opened: int) -> Iterator[str]:
    """Yield the text that a client was not shown when it resumed a thread. `opened` is the log's length before."""
    if thread not in world.record.reverted:
        shown = [json.dumps(message) for message in person.received_since(opened)]
        for text in sorted(world.streamed.get(thread, ())):
            if not any(_begin_of_a_text(text) in each for each in shown):
                yield f"{thread} does not show what was streaming when the server was killed: {text!r}"


def unsent_text(world: "SimWorld", thread: str, input: Sequence[Json]) -> Iterator[str]:
    """Yield the text that the first request after a kill does not contain."""
    if thread not in world.record.reverted:
        for text in sorted(world.streamed.get(thread, ())):
            if _begin_of_a_text(text) not in json.dumps(input):
                yield f"{thread} goes on without what was streaming when the server was killed: {text!r}"


def _begin_of_a_text(text: str) -> str:
    return json.dumps(text)[:-1]
