"""The order rules of the thread API (docs/threads.md), one function for each. Each returns its violations as texts.

They read the record of one connection: what the client sent and received, in order. A rule about the end of something
holds only for clients that stayed to the end.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence

from protocol.base import Json
from tests.support.client import Logged

BEGINS_WITHOUT_WORDS = (
    "contextCompaction",
    "commandExecution",
    "enteredReviewMode",
    "agentMessage",
    "reasoning",
)
"""Items that begin a turn which the user did not begin with words: a compaction, a command, a review, a goal."""

OPENS_THREADS = ("thread/start", "thread/fork")
STARTS_TURNS = ("turn/start", "review/start")
HAS_NO_RESOLVED = ("item/tool/call",)
"""Requests to the client that are part of an item, whose completion says that they are over."""


def violated_thread_invariants(log: Sequence[Logged], *, left_early: bool = False) -> list[str]:
    broken = [f"{rule.__name__}: {problem}" for rule in RULES for problem in rule(log)]
    if not left_early:
        broken += [f"{rule.__name__}: {problem}" for rule in RULES_OF_THE_END for problem in rule(log)]
    return broken


# --- what a record says
def _received(log: Sequence[Logged]) -> Iterator[tuple[int, str, Json]]:
    """Notifications and requests of the thread API: position, method, parameters."""
    for position, entry in enumerate(log):
        method = entry.message.get("method")
        if not entry.sent and _is_of_threads(method or ""):
            yield position, method, entry.message.get("params") or {}


def _is_of_threads(method: str) -> bool:
    return ("/" in method and not method.startswith("codex/event/")) or method == "error"


def _answers(log: Sequence[Logged]) -> Iterator[tuple[int, str, Json]]:
    """The results of requests that succeeded: position, method of the request, result."""
    methods: dict[str, str] = {}
    for position, entry in enumerate(log):
        message = entry.message
        key = json.dumps(message.get("id"))
        if entry.sent and "method" in message and "id" in message:
            methods[key] = message["method"]
        elif not entry.sent and "method" not in message and "result" in message:
            yield position, methods.get(key, ""), message["result"]


def _request_of(log: Sequence[Logged], answer: int) -> int:
    """The position of the request that the answer at a position belongs to."""
    id = json.dumps(log[answer].message.get("id"))
    return max(
        position
        for position, entry in enumerate(log[:answer])
        if entry.sent and "method" in entry.message and json.dumps(entry.message.get("id")) == id
    )


def _turn_of(params: Json) -> str | None:
    turn = params.get("turn")
    id: str | None = turn["id"] if isinstance(turn, dict) else params.get("turnId")
    return id


def _is_background(item: Mapping[str, Json]) -> bool:
    """A command on a terminal may go on after its turn."""
    return item["type"] == "commandExecution" and item.get("processId") is not None


def _items(log: Sequence[Logged], method: str) -> Iterator[tuple[int, str, str, Json]]:
    """Starts or completions of items: position, thread, turn, item."""
    for position, found, params in _received(log):
        if found == method:
            yield position, params["threadId"], params["turnId"], params["item"]


def _turn_ends(log: Sequence[Logged]) -> dict[str, int]:
    return {p["turn"]["id"]: at for at, method, p in _received(log) if method == "turn/completed"}


# --- the rules
def rule_01_the_answer_comes_first(log: Sequence[Logged]) -> Iterator[str]:
    """The answer to a request that begins a turn or a thread comes before all that it causes. A turn that was heard of
    before the request was made is one that the request joins.
    """
    first_of: dict[str, int] = {}
    for position, method, params in _received(log):
        names = (_turn_of(params),) if method.startswith(("turn/", "item/")) else ()
        if method == "thread/started":
            names = (params["thread"]["id"],)
        for name in names:
            if name is not None:
                first_of.setdefault(name, position)
    answered: set[str] = set()
    for position, method, result in _answers(log):
        id = ""
        if method in STARTS_TURNS:
            id = result["turn"]["id"]
        elif method in OPENS_THREADS:
            id = result["thread"]["id"]
        heard = first_of.get(id, position)
        if id and id not in answered and _request_of(log, position) < heard < position:
            yield f"{method} is answered after something about {id}"
        answered.add(id)


def rule_02_a_thread_is_announced_once_it_is_answered(log: Sequence[Logged]) -> Iterator[str]:
    """`thread/started` is the next notification about a thread after the answer that opens it, and comes only so."""
    opened = {
        result["thread"]["id"]: position
        for position, method, result in _answers(log)
        if method in OPENS_THREADS
    }
    announced: list[str] = []
    for position, method, params in _received(log):
        if method == "thread/started":
            id = params["thread"]["id"]
            if id in announced or id not in opened:
                yield f"thread/started for {id}, which no answer opened"
            announced.append(id)
        else:
            thread = params.get("threadId")
            if thread in opened and thread not in announced and position > opened[thread]:
                yield f"{method} comes before thread/started of {thread}"


def rule_03_active_then_started_then_the_users_words(log: Sequence[Logged]) -> Iterator[str]:
    """A thread is active before its turn starts; the first item is what the user said, begun and ended at once."""
    active: dict[str, bool] = {}
    waiting: dict[str, str] = {}  # thread → "item" before its first item, then the id of that item
    for _, method, params in _received(log):
        thread = str(params.get("threadId"))
        if method == "thread/status/changed":
            active[thread] = params["status"]["type"] == "active"
        elif method == "turn/started":
            if not active.get(thread, False):
                yield f"{params['turn']['id']} starts while its thread is not active"
            waiting[thread] = "item"
        elif method in ("item/started", "item/completed") and thread in waiting:
            item = params["item"]
            if method == "item/started" and waiting[thread] == "item":
                if item["type"] == "userMessage":
                    waiting[thread] = item["id"]
                    continue
                if item["type"] not in BEGINS_WITHOUT_WORDS:
                    yield f"the first item of {params['turnId']} is {item['type']}"
            elif item["id"] != waiting[thread]:
                yield f"{item['id']} comes between start and end of the user's words {waiting[thread]}"
            del waiting[thread]


def rule_04_an_item_starts_before_anything_about_it(log: Sequence[Logged]) -> Iterator[str]:
    """`item/started` comes once, inside its turn, before deltas, questions and the completion."""
    running: dict[str, str] = {}
    started: set[tuple[str, str]] = set()
    ended: set[tuple[str, str]] = set()
    for _, method, params in _received(log):
        thread = str(params.get("threadId"))
        if method == "turn/started":
            if thread in running:
                yield f"{params['turn']['id']} starts while {running[thread]} runs"
            running[thread] = params["turn"]["id"]
        elif method == "turn/completed":
            if running.pop(thread, None) != params["turn"]["id"]:
                yield f"{params['turn']['id']} ends and does not run"
        elif method == "item/started":
            key = (thread, params["item"]["id"])
            if key in started:
                yield f"{key} starts twice"
            if running.get(thread) != params["turnId"]:
                yield f"{key} starts outside of its turn"
            started.add(key)
        elif method == "item/completed":
            key = (thread, params["item"]["id"])
            if key not in started:
                yield f"{key} ends and has not started"
            ended.add(key)
        elif params.get("itemId") is not None:
            key = (thread, params["itemId"])
            if method != "item/tool/requestUserInput" and (key not in started or key in ended):
                yield f"{method}: {key} is not open"


def rule_05_an_item_ends_once_before_its_turn(log: Sequence[Logged]) -> Iterator[str]:
    """A command on a terminal that goes on is the one exception."""
    ends = _turn_ends(log)
    completed: dict[tuple[str, str], int] = {}
    for position, thread, _, item in _items(log, "item/completed"):
        if (thread, item["id"]) in completed:
            yield f"{item['id']} ends twice"
        completed[thread, item["id"]] = position
    for _, thread, turn, item in _items(log, "item/started"):
        end = completed.get((thread, item["id"]))
        if turn in ends and (end is None or end > ends[turn]) and not _is_background(item):
            yield f"{item['id']} is open when {turn} ends"


def rule_06_a_thread_waits_before_it_asks(log: Sequence[Logged]) -> Iterator[str]:
    """A thread that asks for an approval says first that it waits for one."""
    flags: dict[str, list[str]] = {}
    for position, method, params in _received(log):
        thread = str(params.get("threadId"))
        if method == "thread/status/changed":
            flags[thread] = params["status"].get("activeFlags") or []
        elif method.endswith("/requestApproval") and "waitingOnApproval" not in flags.get(thread, []):
            yield f"{method} is asked in {thread}, which does not wait (at {position})"


def rule_07_usage_follows_what_it_paid_for(log: Sequence[Logged]) -> Iterator[str]:
    """When usage is told, no message and no reasoning of the model is open."""
    open_items: dict[str, set[str]] = {}
    for _, method, params in _received(log):
        thread = str(params.get("threadId"))
        of_thread = open_items.setdefault(thread, set())
        item = params.get("item") or {}
        if method == "item/started" and item.get("type") in ("agentMessage", "reasoning"):
            of_thread.add(item["id"])
        elif method == "item/completed":
            of_thread.discard(item["id"])
        elif method == "thread/tokenUsage/updated" and of_thread:
            yield f"usage of {params['turnId']} is told while {sorted(of_thread)} are open"


def rule_08_a_diff_follows_its_change(log: Sequence[Logged]) -> Iterator[str]:
    """`turn/diff/updated` comes after a file change, or a command that made one, and only when it changed."""
    changed: set[str] = set()
    last: dict[str, str] = {}
    for _, method, params in _received(log):
        turn = str(params.get("turnId"))
        if method == "item/completed" and params["item"]["type"] in ("fileChange", "commandExecution"):
            changed.add(turn)
        elif method == "turn/diff/updated":
            if turn not in changed:
                yield f"a diff of {turn} comes before any change"
            if last.get(turn) == params["diff"]:
                yield f"the same diff of {turn} comes twice"
            last[turn] = params["diff"]


def rule_09_a_failed_turn_ends_with_its_error(log: Sequence[Logged]) -> Iterator[str]:
    """A final error comes before `turn/completed` with the same error; only retries are announced otherwise."""
    final: dict[str, Json] = {}
    for _, method, params in _received(log):
        if method == "error" and not params["willRetry"]:
            final[params["turnId"]] = params["error"]
        elif method == "turn/completed":
            turn = params["turn"]
            if (turn["status"] == "failed") != (turn["error"] is not None):
                yield f"{turn['id']} is {turn['status']} with error {turn['error']}"
            if turn["status"] == "failed" and final.get(turn["id"]) != turn["error"]:
                yield f"{turn['id']} fails with {turn['error']}, the error said {final.get(turn['id'])}"
            if turn["status"] == "completed" and turn["id"] in final:
                yield f"{turn['id']} completes after a final error"


def rule_10_nothing_follows_the_end_of_a_turn(log: Sequence[Logged]) -> Iterator[str]:
    """`turn/completed` comes once and last, but for what goes on on a terminal."""
    ended: set[str] = set()
    background = {item["id"] for _, _, _, item in _items(log, "item/started") if _is_background(item)}
    for _, method, params in _received(log):
        turn = _turn_of(params)
        item = params.get("itemId") or (params.get("item") or {}).get("id")
        if turn in ended and item not in background and method != "thread/tokenUsage/updated":
            yield f"{method} comes after the end of {turn}"
        if method == "turn/completed":
            ended.add(str(turn))


def rule_11_a_turn_ends_before_its_thread_is_idle(log: Sequence[Logged]) -> Iterator[str]:
    running: dict[str, str] = {}
    for _, method, params in _received(log):
        thread = str(params.get("threadId"))
        if method == "turn/started":
            running[thread] = params["turn"]["id"]
        elif method == "turn/completed":
            running.pop(thread, None)
        elif method == "thread/status/changed" and params["status"]["type"] != "active" and thread in running:
            yield f"{thread} is {params['status']['type']} while {running[thread]} runs"


def rule_12_a_question_is_resolved_before_its_turn_ends(log: Sequence[Logged]) -> Iterator[str]:
    asked: dict[str, tuple[str, str | None]] = {}
    for position, method, params in _received(log):
        id = log[position].message.get("id")
        if id is not None and "threadId" in params and method not in HAS_NO_RESOLVED:
            asked[json.dumps(id)] = (params["threadId"], params.get("turnId"))
        elif method == "serverRequest/resolved":
            if asked.pop(json.dumps(params["requestId"]), None) is None:
                yield f"{params['requestId']} is resolved and was not asked"
        elif method == "turn/completed":
            for request, (_, turn) in asked.items():
                if turn == params["turn"]["id"]:
                    yield f"request {request} is open when {turn} ends"


def rule_13_both_apis_tell_items_in_one_order(log: Sequence[Logged]) -> Iterator[str]:
    """Where the conversation API listens too, the messages that end are the same, in the same order."""
    ends: dict[str, tuple[list[str], list[str]]] = {}
    for entry in log:
        message, params = entry.message, entry.message.get("params") or {}
        if entry.sent or "method" not in message:
            continue
        if message["method"] == "codex/event/agent_message":
            ends.setdefault(params["conversationId"], ([], []))[0].append(params["msg"]["message"])
        elif message["method"] == "item/completed" and params["item"]["type"] == "agentMessage":
            ends.setdefault(params["threadId"], ([], []))[1].append(params["item"]["text"])
    for thread, (events, items) in ends.items():
        both = set(events) & set(items)
        if [text for text in events if text in both] != [text for text in items if text in both]:
            yield f"{thread}: {events} and {items} are not in the same order"


# --- at the end
def rule_10_a_started_turn_ends(log: Sequence[Logged]) -> Iterator[str]:
    ends = _turn_ends(log)
    unsubscribed = {
        entry.message["params"].get("threadId")
        for entry in log
        if entry.sent
        and entry.message.get("method") in ("thread/unsubscribe", "thread/delete", "thread/archive")
    }
    for _, method, params in _received(log):
        begun = method == "turn/started" and params["threadId"] not in unsubscribed
        if begun and params["turn"]["id"] not in ends:
            yield f"{params['turn']['id']} never ends"


Rule = Callable[[Sequence[Logged]], Iterator[str]]

RULES: Sequence[Rule] = (
    rule_01_the_answer_comes_first,
    rule_02_a_thread_is_announced_once_it_is_answered,
    rule_03_active_then_started_then_the_users_words,
    rule_04_an_item_starts_before_anything_about_it,
    rule_05_an_item_ends_once_before_its_turn,
    rule_06_a_thread_waits_before_it_asks,
    rule_07_usage_follows_what_it_paid_for,
    rule_08_a_diff_follows_its_change,
    rule_09_a_failed_turn_ends_with_its_error,
    rule_10_nothing_follows_the_end_of_a_turn,
    rule_11_a_turn_ends_before_its_thread_is_idle,
    rule_12_a_question_is_resolved_before_its_turn_ends,
    rule_13_both_apis_tell_items_in_one_order,
)
RULES_OF_THE_END: Sequence[Rule] = (rule_10_a_started_turn_ends,)
