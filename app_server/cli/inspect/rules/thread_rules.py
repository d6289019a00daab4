"""The order rules of the thread API (docs/threads.md), one function for each rule. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from app_server.cli.inspect.rules import item_rules
from app_server.cli.inspect.rules.item_rules import is_background
from app_server.cli.inspect.rules.order import AtTheEnd, Check, Rule, RuleOfTheEnd, WireMessage, of_threads
from app_server_protocol.encoding import Json

OPENS_THREADS = ("thread/start", "thread/fork")
OLD_WORDS = ("sendUserMessage", "sendUserTurn")
"""Requests of the conversation API with input for the thread."""
STARTS_TURNS = ("turn/start", "review/start")
HAS_NO_RESOLVED = ("item/tool/call",)
"""Requests to the client that are part of an item, whose completion shows that they are over."""
LEAVES_THREADS = ("thread/unsubscribe", "thread/delete", "thread/archive")


def _opened(wire: WireMessage) -> str | None:
    """Return the id of the thread that an answer opens. None if it opens none."""
    if wire.sent or wire.result is None or wire.answers not in OPENS_THREADS:
        return None
    id: str = wire.result["thread"]["id"]
    return id


def _turn_of(params: Json) -> str | None:
    turn = params.get("turn")
    id: str | None = turn["id"] if isinstance(turn, dict) else params.get("turnId")
    return id


def rule_01_the_answer_comes_first() -> Check:
    """Check that the answer to a request that begins a turn or a thread comes before all messages that it causes. A
    request is added to a turn that was known before the request, or that began otherwise: for a goal, or with input
    that the client sent in the conversation API.
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
        if id is not None and wire.asked is not None:
            received = first_of.get(id, wire.position)
            if id not in answered | begun_otherwise and wire.asked.position < received < wire.position:
                yield f"{wire.answers} is answered after something about {id}"
            answered.add(id)

    return check


def rule_02_a_thread_is_announced_once_it_is_answered() -> Check:
    """Check that `thread/started` is the first message about a thread after the answer that opens it, and comes only
    then.
    """
    opened: set[str] = set()
    announced: set[str] = set()

    def check(wire: WireMessage) -> Iterator[str]:
        id = _opened(wire)
        if id is not None:
            if id in announced:
                yield f"thread/started for {id} before the answer that opened it"
            opened.add(id)
        elif wire.of_threads and wire.method == "thread/started":
            id = wire.params["thread"]["id"]  # another client may have opened it
            if id in announced:
                yield f"thread/started for {id} comes twice"
            announced.add(id)
        elif wire.of_threads:
            thread = wire.params.get("threadId")
            if thread in opened and thread not in announced:
                yield f"{wire.method} comes before thread/started of {thread}"

    return check


@of_threads
def rule_03_active_then_started_then_the_users_words() -> Check:
    """Check that a thread is active before its turn starts, and that the input that begins it is complete."""
    active: dict[str, bool] = {}
    waiting: dict[str, str] = {}  # turn → "item" before its first item, then the id of that item
    inactive: set[str] = set()

    def check(wire: WireMessage) -> Iterator[str]:
        method, params = wire.method, wire.params
        if wire.joined:
            active[wire.joined["id"]] = wire.joined["status"]["type"] == "active"
        elif method == "thread/status/changed":
            active[wire.thread] = params["status"]["type"] == "active"
        elif method == "turn/started":
            if not active.get(wire.thread, False):
                inactive.add(params["turn"]["id"])  # no violation if it ends at once: it never began
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
    joined: set[str] = set()

    def check(wire: WireMessage) -> Iterator[str]:
        if wire.joined:
            joined.add(wire.joined["id"])  # a client that joins is notified of the running turn
        elif wire.method == "turn/started":
            if wire.thread in running and wire.thread not in joined:
                yield f"{wire.params['turn']['id']} starts while {running[wire.thread]} runs"
            running[wire.thread] = wire.params["turn"]["id"]
            joined.discard(wire.thread)
        elif wire.method == "turn/completed" and running.pop(wire.thread, None) != wire.params["turn"]["id"]:
            yield f"{wire.params['turn']['id']} ends and does not run"

    return check


@of_threads
def rule_06_a_thread_waits_before_it_asks() -> Check:
    """Check that a thread's status shows that it waits for an approval before it asks for one."""
    flags: dict[str, list[str]] = {}

    def check(wire: WireMessage) -> Iterator[str]:
        thread = wire.thread
        if wire.joined:
            flags[wire.joined["id"]] = wire.joined["status"].get("activeFlags") or []
        elif wire.method == "thread/status/changed":
            flags[thread] = wire.params["status"].get("activeFlags") or []
        elif wire.method.endswith("/requestApproval") and "waitingOnApproval" not in flags.get(thread, []):
            yield f"{wire.method} is asked in {thread}, which does not wait"

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
    """Check that `turn/completed` comes once and last, except for commands that continue on a terminal."""
    ended: set[str] = set()
    background: set[str] = set()

    def check(wire: WireMessage) -> Iterator[str]:
        params = wire.params
        turn, item = _turn_of(params), params.get("item") or {}
        if wire.method == "item/started" and is_background(item):
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
    item_rules.rule_03_the_words_that_begin_a_turn_come_first,
    rule_04_a_thread_runs_one_turn_at_a_time,
    item_rules.rule_04_an_item_starts_before_anything_about_it,
    item_rules.rule_05_an_item_ends_once_before_its_turn,
    rule_06_a_thread_waits_before_it_asks,
    item_rules.rule_07_usage_follows_what_it_paid_for,
    item_rules.rule_08_a_diff_follows_its_change,
    rule_09_a_failed_turn_ends_with_its_error,
    rule_10_nothing_follows_the_end_of_a_turn,
    rule_11_a_turn_ends_before_its_thread_is_idle,
    rule_12_a_question_is_resolved_before_its_turn_ends,
    item_rules.rule_13_both_apis_send_items_in_one_order,
)
THREAD_RULES_OF_THE_END: Sequence[RuleOfTheEnd] = (rule_10_a_started_turn_ends,)
