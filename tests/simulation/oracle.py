"""What must be true of every simulated world."""

import re
from typing import TYPE_CHECKING

from tests.support.invariants import (
    conversations,
    events_of,
    items,
    orphans,
    rollout,
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
    from tests.simulation.world import SimWorld

TOUCHED = re.compile(r"\btouch (m\d+)")


def violations(world: "SimWorld") -> list[str]:
    """Return what is wrong with the world, as texts."""
    broken = [f"{problem}" for person in world.people for problem in _wire(world, person)]
    broken += _unallowed(world)
    broken += _unheard(world)
    broken += [
        f"model request {n}: {problem}"
        for n, request in enumerate(world.model.requests)
        for problem in orphans(request.input)
    ]
    paths = sorted(world.home.glob("**/rollout-*.jsonl"))
    if not world.habits.disk_faults:  # a write that failed in its middle costs that line
        broken += [problem for path in paths for problem in rollout(path)[1]]
    if world.commands.running:
        broken.append(f"{world.commands.running} commands run after the end")
    left = [str(path) for path in world.home.glob("**/*") if path.suffix in (".tmp", ".new")]
    broken += [f"left behind: {path}" for path in left]
    return broken


def _wire(world: "SimWorld", person: object) -> list[str]:
    """Hold the messages of one client against the rules of its API."""
    if world.habits.api == "acp":
        return violated_session_invariants(person)  # type: ignore[arg-type]
    log, received = person.log, person.received()  # type: ignore[attr-defined]
    early = person.left_early  # type: ignore[attr-defined]
    broken = [f"a line of stdout is no message: {line[:100]!r}" for line in person.garbage]  # type: ignore[attr-defined]
    broken += [] if early else unanswered(log)
    broken += too_early(log)
    broken += unasked(received)
    broken += violated_thread_invariants(log, left_early=early)
    paths = sorted(world.home.glob("**/rollout-*.jsonl"))
    if not world.habits.disk_faults:
        broken += stored_otherwise(received, paths)
    open_calls = terminals(world.model.requests)
    for conversation in conversations(received):
        events = list(events_of(received, conversation))
        broken += turns(events, to_the_end=not early)
        broken += items([event for _, event in events])
        broken += spans(events, to_the_end=not early, terminals=open_calls)
    if not world.habits.disk_faults:
        broken += unstored(received, {str(path): rollout(path)[0] for path in paths})
    return broken


def _unallowed(world: "SimWorld") -> list[str]:
    """Return what ran without the yes that the policy asks for."""
    record, habits = world.record, world.habits
    if record.session_yes or record.loosened:
        return []
    broken = []
    for ran in world.commands.ran:
        text = " ".join(ran.argv)
        if not (found := TOUCHED.search(text)) or found[1] in record.yes:
            continue
        if habits.approval_policy == "untrusted":
            broken.append(f"ran without a yes: {text}")
        elif habits.sandbox_mode != "danger-full-access" and not ran.confined:
            broken.append(f"ran outside of the sandbox without a yes: {text}")
    return broken


def _unheard(world: "SimWorld") -> list[str]:
    """Return words whose turn was completed and that no request to the model has."""
    heard = {
        word
        for request in world.model.requests
        for text in request.texts()
        for word in re.findall(r"\bw\d+\b", text)
    }
    return [
        f"{word} was accepted, its turn completed, and the model never got it"
        for word, state in world.record.words.items()
        if state == "completed" and word not in heard
    ]
