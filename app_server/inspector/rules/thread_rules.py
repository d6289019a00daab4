"""The order rules of the thread API (docs/threads.md), a function for each. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from app_server.inspector.rules.order import AtTheEnd, Check, Rule, RuleOfTheEnd, WireMessage, of_threads
from protocol.structs import Json

OPENS_THREADS = ("thread/start", "thread/fork")
OLD_WORDS = ("sendUserMessage", "sendUserTurn")
"""Requests of the conversation API with words for the thread."""
STARTS_TURNS = ("turn/start", "review/start")
HAS_NO_RESOLVED = ("item/tool/call",)
"""Requests to the client that are part of an item, whose completion says that they are over."""
LEAVES_THREADS = ("thread/unsubscribe", "thread/delete", "thread/archive")


def _opened(wire: WireMessage) -> str | None:
    """Return the thread that an answer opens."""
    if wire.sent or wire.result is None or wire.answers not in OPENS_THREADS:
        return None
    id: str = wire.result["thread"]["id"]
    return id


def _turn_of(params: Json) -> str | None:
    turn = params.get("turn")
    id: str | None = turn["id"] if isinstance(turn, dict) else params.get("turnId")
    return id


def _is_background(item: Mapping[str, Json]) -> bool:
    """Check for a command on a terminal, which may go on after its turn."""
    return item["type"] == "commandExecution" and item.get("processId") is not None


def rule_01_the_answer_comes_first() -> Check:
    """Check that the answer to a request that begins a turn or a thread comes before all that it causes. A turn that
    was known before the request was made, or that began otherwise, is one that the request joins: for a goal, or with
    words that the client said in the conversation API.
    """
    first_of: dict[str, int] = {}
    answered: set[str] = set()
    begin_otherwise: set[str] = set()
    begun_otherwise: set[str] = set()

    def check(wire: WireMessage) -> Iterator[str]:
        if wire.of_threads:
            method, params = wire.method, wire.params
            name = _turn_of(params) if method.startswith(("turn/", "item/")) else None
            if method == "thread/started":
                name = params["thread"]["id"]
            elif method == "thread/goal/updated":
                begin_otherwise.add(wire.thread)
            if name is not None:
                first_of.setdefault(name, wire.position)
                if wire.thread in begin_otherwise:
                    begun_otherwise.add(name)
        elif wire.sent and wire.method in OLD_WORDS:
            begin_otherwise.add(str(wire.params.get("conversationId")))
        id = _opened(wire)
        if not wire.sent and wire.result is not None and wire.answers in STARTS_TURNS:
            id = wire.result["turn"]["id"]
        if id is not None:
            received = first_of.get(id, wire.position)
            if id not in answered | begun_otherwise and wire.asked_at < received < wire.position:
                yield f"{wire.answers} is answered after something about {id}"
            answered.add(id)

    return check


def rule_02_a_thread_is_announced_once_it_is_answered() -> Check:
    """Check that `thread/started` comes next about a thread after the answer that opens it, and only so."""
    opened: set[str] = set()
    announced: set[str] = set()

    def check(wire: WireMessage) -> Iterator[str]:
        id = _opened(wire)
        if id is not None:
            opened.add(id)
        elif wire.of_threads and wire.method == "thread/started":
            id = wire.params["thread"]["id"]
            if id in announced or id not in opened:
                yield f"thread/started for {id}, which no answer opened"
            announced.add(id)
        elif wire.of_threads:
            thread = wire.params.get("threadId")
            if thread in opened and thread not in announced:
                yield f"{wire.method} comes before thread/started of {thread}"

    return check


@of_threads
def rule_03_active_then_started_then_the_users_words() -> Check:
    """Check that a thread is active before its turn starts, and that the words that begin it come whole."""
    active: dict[str, bool] = {}
    waiting: dict[str, str] = {}  # turn → "item" before its first item, then the id of that item
    inactive: set[str] = set()

    def check(wire: WireMessage) -> Iterator[str]:
        method, params = wire.method, wire.params
        if method == "thread/status/changed":
            active[wire.thread] = params["status"]["type"] == "active"
        elif method == "turn/started":
            if not active.get(wire.thread, False):
                inactive.add(params["turn"]["id"])  # no fault where it ends at once: it never began
            waiting[params["turn"]["id"]] = "item"
        elif method in ("item/started", "item/completed") and params["turnId"] in waiting:
            turn, item = params["turnId"], params["item"]
            if turn in inactive:
                yield f"{turn} starts while its thread is not active"
            if method == "item/started" and waiting[turn] == "item":
                if item["type"] == "userMessage":
                    waiting[turn] = item["id"]
                    return
            elif item["id"] != waiting[turn]:
                yield f"{item['id']} comes between start and end of the user's words {waiting[turn]}"
            del waiting[turn]

    return check


@of_threads
def rule_04_a_thread_runs_one_turn_at_a_time() -> Check:
    running: dict[str, str] = {}

    def check(wire: WireMessage) -> Iterator[str]:
        if wire.method == "turn/started":
            if wire.thread in running:
                yield f"{wire.params['turn']['id']} starts while {running[wire.thread]} runs"
            running[wire.thread] = wire.params["turn"]["id"]
        elif wire.method == "turn/completed" and running.pop(wire.thread, None) != wire.params["turn"]["id"]:
            yield f"{wire.params['turn']['id']} ends and does not run"

    return check


@of_threads
def rule_04_an_item_starts_before_anything_about_it() -> Check:
    """Check that `item/started` comes once, inside its turn, before deltas, questions and the completion."""
    running: dict[str, str] = {}
    started: set[tuple[str, str]] = set()
    ended: set[tuple[str, str]] = set()

    def check(wire: WireMessage) -> Iterator[str]:
        method, params = wire.method, wire.params
        thread = wire.thread
        if method in ("turn/started", "turn/completed"):
            running[thread] = params["turn"]["id"] if method == "turn/started" else ""
        elif method == "item/started":
            key = (thread, params["item"]["id"])
            if key in started:
                yield f"{key[1]} starts twice"
            if running.get(thread) != params["turnId"]:
                yield f"{key[1]} starts outside of its turn"
            started.add(key)
        elif method == "item/completed":
            key = (thread, params["item"]["id"])
            if key not in started:
                yield f"{key[1]} ends and has not started"
            ended.add(key)
        elif params.get("itemId") is not None:
            key = (thread, params["itemId"])
            if method != "item/tool/requestUserInput" and (key not in started or key in ended):
                yield f"{method}: {key[1]} is not open"

    return check


@of_threads
def rule_05_an_item_ends_once_before_its_turn() -> Check:
    """Check all items but commands on a terminal, which may go on."""
    open_items: dict[tuple[str, str], str] = {}
    completed: set[tuple[str, str]] = set()

    def check(wire: WireMessage) -> Iterator[str]:
        params = wire.params
        if wire.method == "item/started":
            if not _is_background(params["item"]):
                open_items[params["threadId"], params["item"]["id"]] = params["turnId"]
        elif wire.method == "item/completed":
            key = params["threadId"], params["item"]["id"]
            if key in completed:
                yield f"{params['item']['id']} ends twice"
            completed.add(key)
            open_items.pop(key, None)
        elif wire.method == "turn/completed":
            turn = params["turn"]["id"]
            for key in [key for key, of in open_items.items() if of == turn]:
                yield f"{key[1]} is open when {turn} ends"
                del open_items[key]

    return check


@of_threads
def rule_06_a_thread_waits_before_it_asks() -> Check:
    """Check that a thread says that it waits for an approval before it asks for one."""
    flags: dict[str, list[str]] = {}

    def check(wire: WireMessage) -> Iterator[str]:
        thread = wire.thread
        if wire.method == "thread/status/changed":
            flags[thread] = wire.params["status"].get("activeFlags") or []
        elif wire.method.endswith("/requestApproval") and "waitingOnApproval" not in flags.get(thread, []):
            yield f"{wire.method} is asked in {thread}, which does not wait"

    return check


def rule_07_usage_follows_what_it_paid_for() -> Check:
    """Check that no message and no reasoning of the model is open when usage is sent; a client that joins is sent it
    once at any time."""
    open_items: dict[str, set[str]] = {}
    joined: set[str] = set()

    def check(wire: WireMessage) -> Iterator[str]:
        if wire.answers == "thread/resume" and wire.result is not None:
            joined.add(wire.result["thread"]["id"])
        if not wire.of_threads:
            return
        of_thread = open_items.setdefault(wire.thread, set())
        item = wire.params.get("item") or {}
        if wire.method == "item/started" and item.get("type") in ("agentMessage", "reasoning"):
            of_thread.add(item["id"])
        elif wire.method == "item/completed":
            of_thread.discard(item["id"])
        elif wire.method == "thread/tokenUsage/updated" and wire.params["threadId"] in joined:
            joined.discard(wire.params["threadId"])
        elif wire.method == "thread/tokenUsage/updated" and of_thread:
            yield f"usage of {wire.params['turnId']} is sent while {sorted(of_thread)} are open"

    return check


@of_threads
def rule_08_a_diff_follows_its_change() -> Check:
    """Check that `turn/diff/updated` comes after a file change, or a command, and only when it changed."""
    changed: set[str] = set()
    last: dict[str, str] = {}

    def check(wire: WireMessage) -> Iterator[str]:
        turn = str(wire.params.get("turnId"))
        if wire.method == "item/completed":
            if wire.params["item"]["type"] in ("fileChange", "commandExecution"):
                changed.add(turn)
        elif wire.method == "turn/diff/updated":
            if turn not in changed:
                yield f"a diff of {turn} comes before any change"
            if last.get(turn) == wire.params["diff"]:
                yield f"the same diff of {turn} comes twice"
            last[turn] = wire.params["diff"]

    return check


@of_threads
def rule_09_a_failed_turn_ends_with_its_error() -> Check:
    """Check that a final error comes before `turn/completed` with the same error, and otherwise only retries."""
    final: dict[str, Json] = {}

    def check(wire: WireMessage) -> Iterator[str]:
        if wire.method == "error" and not wire.params["willRetry"]:
            final[wire.params["turnId"]] = wire.params["error"]
        elif wire.method == "turn/completed":
            turn = wire.params["turn"]
            if (turn["status"] == "failed") != (turn["error"] is not None):
                yield f"{turn['id']} is {turn['status']} with error {turn['error']}"
            if turn["status"] == "failed" and final.get(turn["id"]) != turn["error"]:
                yield f"{turn['id']} fails with {turn['error']}, the error said {final.get(turn['id'])}"
            if turn["status"] == "completed" and turn["id"] in final:
                yield f"{turn['id']} completes after a final error"

    return check


@of_threads
def rule_10_nothing_follows_the_end_of_a_turn() -> Check:
    """Check that `turn/completed` comes once and last, but for what goes on on a terminal."""
    ended: set[str] = set()
    background: set[str] = set()

    def check(wire: WireMessage) -> Iterator[str]:
        params = wire.params
        turn, item = _turn_of(params), params.get("item") or {}
        if wire.method == "item/started" and _is_background(item):
            background.add(item["id"])
        id = params.get("itemId") or item.get("id")
        if turn in ended and id not in background and wire.method != "thread/tokenUsage/updated":
            yield f"{wire.method} comes after the end of {turn}"
        if wire.method == "turn/completed":
            ended.add(str(turn))

    return check


@of_threads
def rule_11_a_turn_ends_before_its_thread_is_idle() -> Check:
    running: dict[str, str] = {}

    def check(wire: WireMessage) -> Iterator[str]:
        thread = wire.thread
        if wire.method == "turn/started":
            running[thread] = wire.params["turn"]["id"]
        elif wire.method == "turn/completed":
            running.pop(thread, None)
        elif wire.method == "thread/status/changed" and thread in running:
            status = wire.params["status"]["type"]
            if status != "active":
                yield f"{thread} is {status} while {running[thread]} runs"

    return check


@of_threads
def rule_12_a_question_is_resolved_before_its_turn_ends() -> Check:
    asked: dict[str, str | None] = {}

    def check(wire: WireMessage) -> Iterator[str]:
        id = wire.message.get("id")
        if id is not None and "threadId" in wire.params and wire.method not in HAS_NO_RESOLVED:
            asked[json.dumps(id)] = wire.params.get("turnId")
        elif wire.method == "serverRequest/resolved":
            request = json.dumps(wire.params["requestId"])
            if request not in asked:
                yield f"{wire.params['requestId']} is resolved and was not asked"
            asked.pop(request, None)
        elif wire.method == "turn/completed":
            ended = wire.params["turn"]["id"]
            for request in [request for request, turn in asked.items() if turn == ended]:
                yield f"request {request} is open when {ended} ends"
                del asked[request]

    return check


def rule_13_both_apis_send_items_in_one_order() -> Check:
    """Check, where the conversation API listens too, that the same messages end in the same order."""
    ends: dict[str, tuple[list[str], list[str]]] = {}

    def check(wire: WireMessage) -> Iterator[str]:
        params = wire.params
        if wire.sent:
            return
        if wire.method == "codex/event/agent_message":
            thread, text, place = params["conversationId"], params["msg"]["message"], 0
        elif wire.method == "item/completed" and params["item"]["type"] == "agentMessage":
            thread, text, place = params["threadId"], params["item"]["text"], 1
        else:
            return
        sent = ends.setdefault(thread, ([], []))
        sent[place].append(text)
        both = set(sent[0]) & set(sent[1])
        events, items = ([each for each in texts if each in both] for texts in sent)
        if any(a != b for a, b in zip(events, items, strict=False)):  # one of them may be ahead
            yield f"{thread}: {events} and {items} are not in the same order"

    return check


def rule_10_a_started_turn_ends() -> tuple[Check, AtTheEnd]:
    running: dict[str, str] = {}
    left: set[str] = set()

    def check(wire: WireMessage) -> Iterator[str]:
        if wire.sent and wire.method in LEAVES_THREADS:
            left.add(wire.params["threadId"])
        elif wire.of_threads and wire.method == "turn/started":
            running[wire.params["turn"]["id"]] = wire.params["threadId"]
        elif wire.of_threads and wire.method == "turn/completed":
            running.pop(wire.params["turn"]["id"], None)
        yield from ()

    def end() -> Iterator[str]:
        yield from (f"{turn} never ends" for turn, thread in running.items() if thread not in left)

    return check, end


THREAD_RULES: Sequence[Rule] = (
    rule_01_the_answer_comes_first,
    rule_02_a_thread_is_announced_once_it_is_answered,
    rule_03_active_then_started_then_the_users_words,
    rule_04_a_thread_runs_one_turn_at_a_time,
    rule_04_an_item_starts_before_anything_about_it,
    rule_05_an_item_ends_once_before_its_turn,
    rule_06_a_thread_waits_before_it_asks,
    rule_07_usage_follows_what_it_paid_for,
    rule_08_a_diff_follows_its_change,
    rule_09_a_failed_turn_ends_with_its_error,
    rule_10_nothing_follows_the_end_of_a_turn,
    rule_11_a_turn_ends_before_its_thread_is_idle,
    rule_12_a_question_is_resolved_before_its_turn_ends,
    rule_13_both_apis_send_items_in_one_order,
)
THREAD_RULES_OF_THE_END: Sequence[RuleOfTheEnd] = (rule_10_a_started_turn_ends,)
