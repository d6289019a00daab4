"""Rules for people who share a server.

A notification of a thread reaches all its followers, in one order. A question is sent to all of them, and it ends for
all of them for a reason. A tool call goes to the client that brought the tool.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from app_server_protocol.encoding import Json
from tests.simulation.followers import SOON, Follower, Heard, followers
from tests.simulation.people import ON_THE_WAY, WITHDRAWALS
from tests.simulation.record import about
from tests.simulation.text_rules import chunks_not_whole, text_not_whole

if TYPE_CHECKING:
    from tests.simulation.sim_world import SimWorld

FOREIGN_TURNS = (
    "session_06",
    "task_started",
    "rule_01_the_answer_comes_first: turn/start",
    "rule_07_usage_follows_what_it_paid_for",
)
"""Beginnings of problems that are no problems where other clients begin turns, too: a client did not ask for all the
events that it receives, and receives in the middle of a message what was used before.
"""

ENDS_QUESTIONS = (
    "turn/interrupt",
    "review/start",
    "thread/compact/start",
    "thread/archive",
    "thread/revert",
    "interruptConversation",
    "archiveConversation",
    "resumeConversation",
    "submit",
    "session/cancel",
    "session/load",
)
"""Requests of a person that end the turn of a question. A client that is alone opens a conversation or a session anew.
"""
TOLD_TO_ALL = ("thread/settings/updated", "thread/name/updated", "thread/archived", "thread/reverted")


def with_foreign_turns(problems: Iterable[str]) -> list[str]:
    """Return the problems that remain problems where other clients begin turns of the same thread."""
    return [
        each
        for each in problems
        if not each.startswith(FOREIGN_TURNS)
        # A prompt that is cancelled before its message has joined another client's turn ends before that turn.
        and not (each.startswith("session_05") and "cancelled" in each)
    ]


def company_rules(world: "SimWorld") -> Iterator[str]:
    """Yield violations between the clients of the first server."""
    all_of_them = followers(world)
    lasts = not world.killed.is_set() and not world.habits.clock_jumps
    for one in all_of_them:
        yield from text_not_whole(one)
    yield from chunks_not_whole(all_of_them)
    yield from _in_another_order(all_of_them)
    of_threads = [each for each in all_of_them if each.person.api == "v2"]
    if lasts:
        yield from _told_to_some(of_threads)
        yield from _asked_of_some(of_threads)
    yield from _over_without_cause(all_of_them, world)
    yield from _tools_elsewhere(of_threads)


# --- order
def _ends(one: Follower) -> dict[str, list[tuple[str, str]]]:
    """Return, by thread, the names of ended items, turns and calls, each with the whole notification."""
    found: dict[str, list[tuple[str, str]]] = {}
    for each in one.heard:
        if each.sent:
            continue
        params, msg = each.params, each.params.get("msg") or {}
        said = json.dumps(each.params, sort_keys=True)
        if each.method == "item/completed":
            found.setdefault(params["threadId"], []).append(
                (f"{params['turnId']} {params['item']['id']}", said)
            )
        elif each.method == "turn/completed":
            found.setdefault(params["threadId"], []).append((params["turn"]["id"], said))
        elif msg.get("type") in ("exec_command_end", "patch_apply_end"):
            found.setdefault(f"{params['conversationId']} in old words", []).append(
                (f"v1 {params['id']} {msg['call_id']}", said)
            )
    return found


def _in_another_order(all_of_them: Sequence[Follower]) -> Iterator[str]:
    """Yield threads for which two people over one API received different ends, or a different order of ends. A person
    who came later or left earlier may lack the other's first or last ends, and none between.
    """
    ends = [(one, _ends(one)) for one in all_of_them]
    for n, (one, mine) in enumerate(ends):
        for other, theirs in ends[n + 1 :]:
            if one.person.api != other.person.api or _apart(one, other):
                continue
            for thread in mine.keys() & theirs.keys():
                if not _fit(mine[thread], theirs[thread]):
                    names = [[name for name, _ in each[thread]] for each in (mine, theirs)]
                    yield f"{one.person.name} and {other.person.name} were told otherwise of {thread}: {names}"


def _apart(one: Follower, other: Follower) -> bool:
    """Return whether one left before the other came: the operations of both may have the same numbers."""
    came = max((each.heard[0].seconds for each in (one, other) if each.heard), default=0.0)
    return any(each.person.left_at is not None and each.person.left_at <= came for each in (one, other))


def _fit(mine: list[tuple[str, str]], theirs: list[tuple[str, str]]) -> bool:
    names = Counter(name for name, _ in mine) | Counter(name for name, _ in theirs)
    if not names or max(names.values()) > 1:
        return True  # operations count from zero again
    here, there = [name for name, _ in mine], [name for name, _ in theirs]
    first = next((name for name in here if name in there), None)
    if first is None:
        return True
    i, j = here.index(first), there.index(first)
    return min(i, j) == 0 and all(a == b for a, b in zip(mine[i:], theirs[j:], strict=False))


# --- notifications and questions
def _told_to_some(people: Sequence[Follower]) -> Iterator[str]:
    for one in people:
        for told in one.heard:
            thread = str(told.params.get("threadId"))
            if told.sent or told.method not in TOLD_TO_ALL or thread not in one.since:
                continue
            cause = _asked_for(told, thread, people)
            for other in people:
                # A client that joins while a thread is reverted is shown the remaining turns.
                follows = thread in other.since and other.since[thread].position < cause.position
                if (
                    follows
                    and other.stays(thread, told)
                    and not any(
                        each.method == told.method and each.params == told.params for each in other.near(told)
                    )
                ):
                    yield f"{other.person.name} was not told of {told.method} as {one.person.name} was"


def _asked_for(told: Heard, thread: str, people: Sequence[Follower]) -> Heard:
    """Return the request that reverted the thread. For any other notification return the notification itself."""
    if told.method != "thread/reverted":
        return told
    asked = (
        each
        for one in people
        for each in one.heard
        if each.sent
        and each.method == "thread/revert"
        and each.params.get("threadId") == thread
        and each.position < told.position
    )
    return max(asked, key=lambda each: each.position, default=told)


def _asked_of_some(people: Sequence[Follower]) -> Iterator[str]:
    """Yield questions that one follower received and another did not, though they were open for some time."""
    for one in people:
        for question in one.heard:
            if not question.is_question or not question.method.endswith("/requestApproval"):
                continue
            over = next((each for each in one.heard if _resolves(each, question)), None)
            if over is None or over.seconds <= question.seconds:
                continue
            thread, call = about(question.params)
            for other in people:
                joined = other.since.get(thread)
                begin = question
                if joined is not None and question.position < joined.position < over.position:
                    begin = joined
                follows = other.stays(thread, begin) or (begin is joined and other.is_there(joined))
                if not follows or over.seconds <= begin.seconds:
                    continue
                by_then = (each for each in other.heard if each.seconds <= begin.seconds + SOON)
                if not any(each.is_question and about(each.params) == (thread, call) for each in by_then):
                    yield f"{other.person.name} was not asked what {one.person.name} was: {call} of {thread}"


def _resolves(heard: Heard, question: Heard) -> bool:
    return (
        not heard.sent
        and heard.position > question.position
        and heard.method in WITHDRAWALS
        and heard.params["requestId"] == question.message["id"]
    )


def _over_without_cause(all_of_them: Sequence[Follower], world: "SimWorld") -> Iterator[str]:
    """Yield approvals that ended for a person who did not answer, though no person had answered them or ended
    their turn.
    """
    if world.killed.is_set() or world.habits.clock_jumps:
        return
    answers = [
        (each, _asked_under(one, each))
        for one in all_of_them
        for each in one.heard
        if each.sent and "method" not in each.message
    ]
    said = [(call, each) for each, call in answers if call is not None and _is_answer(each.message)]
    ended = [
        (about(each.params)[0], each)
        for one in all_of_them
        for each in one.heard
        if each.sent and each.method in ENDS_QUESTIONS
    ]
    for one in all_of_them:
        for question in one.heard:
            if not question.is_question or not question.method.endswith(("/requestApproval", "_permission")):
                continue
            over = next((each for each in one.heard if _resolves(each, question)), None)
            if over is None:
                continue
            mine = any(
                each.sent
                and each.message.get("id") == question.message["id"]
                and "method" not in each.message
                for each in one.heard
                if question.position < each.position < over.position
            )
            thread, call = about(question.params)
            by_others = any(what == (thread, call) and each.position < over.position for what, each in said)
            by_end = not _went_on(one, question) and any(
                of == thread and question.seconds - SOON < each.seconds and each.position < over.position
                for of, each in ended
            )
            if not (mine or by_others or by_end):
                yield f"{question.method} for {call} was over for {one.person.name}, and nobody had answered"


def _went_on(one: Follower, question: Heard) -> bool:
    """Return whether the turn of a question completed, so that nobody has ended it."""
    turns = (each.params["turn"] for each in one.heard if not each.sent and each.method == "turn/completed")
    return any(
        each["id"] == question.params.get("turnId") and each["status"] == "completed" for each in turns
    )


def _asked_under(one: Follower, answer: Heard) -> tuple[str, str] | None:
    """Return the question that an answer is for: the last one of that id, or one that was on its way when its id was
    guessed.
    """
    at = one.heard.index(answer)
    same = [
        (n, each)
        for n, each in enumerate(one.heard[: at + ON_THE_WAY])
        if each.is_question and each.message["id"] == answer.message.get("id")
    ]
    before = [each for n, each in same if n < at]
    return about((before[-1] if before else same[0][1]).params) if same else None


def _is_answer(message: Json) -> bool:
    return "result" in message and message["result"] != {"decision": 5}


def _tools_elsewhere(people: Sequence[Follower]) -> Iterator[str]:
    """Yield tool calls that went to another connection than the one that brought the tool, while that one was open."""
    for one in people:
        for each in one.heard:
            if each.is_question and each.method == "item/tool/call":
                thread = each.params["threadId"]
                owners = (other for other in people if thread in other.brought and other is not one)
                if any(
                    other.person.left_at is None or other.person.left_at > each.seconds for other in owners
                ):
                    yield f"{one.person.name} was to run a tool of another client in {thread}"
