"""The oracle: the rules that every simulated world has to obey."""

import itertools
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from app_server.cli.inspect.rules.order import Requests, WireMessage
from app_server_protocol.encoding import Json
from tests.simulation.company_rules import company_rules, with_foreign_turns
from tests.simulation.consent_rules import consent_rules
from tests.simulation.model_rules import model_rules
from tests.simulation.sayings import thread_of
from tests.simulation.sim_commands import OWN_COMMAND
from tests.simulation.storage_rules import storage_rules
from tests.simulation.stored import StoredThreads, rollout_of
from tests.simulation.users_files import lost_lines
from tests.support.invariants import (
    conversations,
    events_of,
    items,
    spans,
    terminals,
    too_early,
    turns,
    unanswered,
    unasked,
    unstored,
)
from tests.support.thread_invariants import (
    stored_otherwise,
    violated_session_invariants,
    violated_thread_invariants,
)

if TYPE_CHECKING:
    from tests.simulation.people import Person
    from tests.simulation.sim_world import SimWorld

SAYS = ("turn/start", "sendUserMessage", "session/prompt")
ATTEMPT = re.compile(r"Reconnecting\.\.\. (\d+)/(\d+)")
SAID = re.compile(r"\b(w\d+) (?:please|again)")


def violations(world: "SimWorld") -> list[str]:
    """Return all violations in the world, as texts."""
    homes = {home: StoredThreads(home) for home in {world.home, *(person.home for person in world.people)}}
    broken = [problem for person in world.people for problem in _wire(world, person, homes[person.home])]
    broken = with_foreign_turns(broken) if world.habits.company else broken
    broken += company_rules(world) if world.habits.company else ()
    broken += [problem for person in world.people for problem in person.wrong]
    broken += _overtaken(world)
    if not world.loses_lines:
        broken += [problem for person in world.people for problem in _shown_too_early(person)]
    broken += consent_rules(world)
    broken += model_rules(world)
    broken += storage_rules(world)
    broken += lost_lines(world)
    if not world.loses_lines:  # a write that failed in its middle costs that line
        broken += homes[world.home].broken
    if world.commands.running:
        broken.append(f"{world.commands.running} commands run after the end")
    left = [str(path) for path in world.home.glob("**/*") if path.suffix in (".tmp", ".new")]
    broken += [f"left behind: {path}" for path in left]
    return broken


def _wire(world: "SimWorld", person: "Person", stored: StoredThreads) -> list[str]:
    """Check the messages of one client against the rules of its API."""
    if person.api == "acp":
        of_sessions = violated_session_invariants(person)  # type: ignore[arg-type]
        goals = "goal" in world.habits.deeds  # goals begin turns without a prompt
        return [each for each in of_sessions if not (goals and each.startswith("session_06"))]
    log, received = person.log, person.received()
    early = person.left_early
    broken = [f"a line of stdout is no message: {line[:100]!r}" for line in person.garbage]
    broken += [] if early else unanswered(log)
    broken += too_early(log)
    broken += unasked(received)
    of_threads = violated_thread_invariants(log, left_early=early)
    if world.loses_lines:  # the id of a lost item is used again
        of_threads = [each for each in of_threads if not each.endswith(" twice")]
    broken += of_threads
    if not world.loses_lines:
        broken += stored_otherwise(received, stored.paths, stored.items)
    broken += _told_otherwise(person)
    broken += _tried_too_often(world, received)
    requests = Requests()
    wires = [requests.match(entry.sent, entry.message) for entry in log]
    broken += _ended_too_early(wires)
    broken += _out_of_turn(wires)
    broken += [] if early else _unshown(wires)
    # Where a turn fails, the model does not learn which commands still run.
    open_calls = dict.fromkeys(world.model.terminals, True) | terminals(world.model.requests)
    for conversation in conversations(received):
        events = list(events_of(received, conversation))
        begun = {event["call_id"] for _, event in events if event["type"] == "exec_command_begin"}
        for (
            call
        ) in world.model.terminals:  # a call that came twice has the id of the other with more behind it
            open_calls |= {each: True for each in begun if each.startswith(f"{call}-")}
        broken += turns(events, to_the_end=not early)
        broken += items([event for id, event in events if id])
        broken += spans(events, to_the_end=not early, terminals=open_calls)
    if not world.loses_lines:
        broken += unstored(received, stored.lines)
    return broken


def _overtaken(world: "SimWorld") -> list[str]:
    """Return turns of one thread for which the model got the message of a later one first."""
    broken = []
    threads: dict[tuple[int, str], dict[str, int]] = {}
    for n, person in enumerate(world.people):
        for entry in person.log:
            if entry.sent and entry.message.get("method") in SAYS:
                params = entry.message["params"]
                found = SAID.search(str(params))
                if found:
                    order = threads.setdefault((n, thread_of(params) or ""), {})
                    order.setdefault(found[1], len(order))
    for n, request in enumerate(world.model.requests):
        words = [found[1] for text in request.texts() if (found := SAID.match(text))]
        for (_, thread), order in threads.items():
            mine = [order[word] for word in words if word in order]
            if mine != sorted(mine):
                broken.append(f"model request {n}: the words of {thread} are in the order {words}")
    return broken


def _shown_too_early(person: "Person") -> list[str]:
    """Return what the client was shown before it was stored."""
    broken = []
    files: dict[str, bytes | None] = {}
    for shown in person.shown:
        if shown.thread not in files:
            path = rollout_of(person.home, shown.thread)
            files[shown.thread] = None if path is None else path.read_bytes()
        whole = files[shown.thread]
        if whole is not None:
            stored = whole[: shown.size]
            if not any(re.search(each.encode(), stored) for each in shown.stored_as):
                broken.append(f"{shown.stored_as[0]} was shown before it was stored")
    return broken


def _out_of_turn(wires: Sequence[WireMessage]) -> list[str]:
    """Return turns of the thread API that began before one that was requested earlier, with a message or a command."""
    accepted: dict[str, tuple[int, int]] = {}
    """Positions of the request and of its answer, by the word of the request."""
    began: dict[str, tuple[int, str]] = {}
    """Position of the begin and the id of the turn, by the word of the request."""
    turns: set[str] = set()
    interrupted: set[str] = set()
    commands: set[str] = set()
    threads: dict[str, list[str]] = {}
    for wire in wires:
        if request := _accepted(wire, "turn/start", "thread/shellCommand"):
            found = SAID.search(str(request.params)) or OWN_COMMAND.search(str(request.params))
            if found:
                commands |= {found[1]} if request.method == "thread/shellCommand" else set()
                accepted[found[1]] = (request.position, wire.position)
                threads.setdefault(request.params["threadId"], []).append(found[1])
        elif wire.method == "item/started" and wire.params["turnId"] not in turns:
            turns.add(wire.params["turnId"])
            item = str(wire.params["item"])
            if found := SAID.search(item) or OWN_COMMAND.search(item):
                began[found[1]] = wire.position, wire.params["turnId"]
        elif wire.method == "turn/completed" and wire.params["turn"]["status"] == "interrupted":
            interrupted.add(wire.params["turn"]["id"])
    return [
        f"{thread} begins a turn for {later} before the one for {word}, which was accepted before"
        for thread, words in threads.items()
        for word, later in itertools.combinations(
            sorted((word for word in words if word in began), key=accepted.__getitem__), 2
        )
        if accepted[word][1] < accepted[later][0]
        and began[later] < began[word]
        # The command was to run beside the turn of a goal that a message joined, and that was interrupted before it
        # began.
        and not (word in commands and began[later][1] in interrupted)
    ]


def _accepted(wire: WireMessage, *methods: str) -> WireMessage | None:
    """Return the request of one of these methods that the message accepts; None if it accepts none."""
    return wire.asked if not wire.sent and wire.result is not None and wire.answers in methods else None


def _ended_too_early(wires: Sequence[WireMessage]) -> list[str]:
    """Return interrupted turns that were joined by messages sent after the interrupt."""
    interrupts: dict[str, int] = {}
    joined: list[tuple[str, int]] = []
    for wire in wires:
        if request := _accepted(wire, "turn/interrupt"):
            interrupts.setdefault(request.params["turnId"], request.position)
        elif request := _accepted(wire, "turn/start"):
            joined.append((wire.result["turn"]["id"], request.position))
    return [
        f"words behind the interrupt of {turn} are in it"
        for turn, at in joined
        if interrupts.get(turn, at) < at
    ]


def _unshown(wires: Sequence[WireMessage]) -> list[str]:
    """Return words that the thread API accepted for a turn which began, and that were never shown."""
    taken: dict[str, str] = {}
    shown: set[str] = set()
    begun: set[str] = set()
    ended: set[str] = set()
    for wire in wires:
        if request := _accepted(wire, "turn/start", "turn/steer"):
            if found := SAID.search(str(request.params)):
                result = wire.result
                taken[found[1]] = result["turn"]["id"] if "turn" in result else result["turnId"]
        elif wire.method == "item/started":
            begun.add(wire.params["turnId"])
            shown.update(SAID.findall(str(wire.params["item"])))
        elif wire.method == "turn/completed":
            ended.add(wire.params["turn"]["id"])
    return [
        f"{word} joined {turn}, which has ended, and was never shown"
        for word, turn in taken.items()
        if turn in begun & ended and word not in shown
    ]


def _tried_too_often(world: "SimWorld", received: Sequence[Json]) -> list[str]:
    """Return attempts beyond the configured number."""
    told = (ATTEMPT.search(str(message)) for message in received)
    return [
        f"an attempt too many: {found[0]}"
        for found in told
        if found is not None and not int(found[1]) <= int(found[2]) == world.habits.retries
    ]


def _told_otherwise(person: "Person") -> list[str]:
    """Return the threads of a client that listens over two APIs and received other ends of turns over one than over the
    other. For a turn that never began the conversation API sends the end only. Listening over that API ends with the
    conversation; a crash may come between the two notifications.
    """
    new: dict[str, list[str]] = {}
    old: dict[str, list[str]] = {}
    over: set[str] = set()
    for message in person.received():
        params = message.get("params") or {}
        match message.get("method"):
            case "codex/event/shutdown_complete":
                over.add(params["conversationId"])
            case "turn/completed" if params["threadId"] not in over:
                status = "aborted" if params["turn"]["status"] == "interrupted" else "ended"
                new.setdefault(params["threadId"], []).append(status)
            case "codex/event/task_complete":
                old.setdefault(params["conversationId"], []).append("ended")
            case "codex/event/turn_aborted":
                old.setdefault(params["conversationId"], []).append("aborted")
    return [
        f"{thread} was told as {old[thread]} and as {told}"
        for thread, told in new.items()
        if thread in old and (told[: len(old[thread])] if person.left_early else told) != old[thread]
    ]
