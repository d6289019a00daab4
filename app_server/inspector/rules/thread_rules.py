"""The order rules of the thread API (docs/threads.md), a function for each. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from app_server.inspector.rules.order import AtTheEnd, Check, Rule, RuleOfTheEnd, WireMessage
from protocol.base import Json

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
LEAVES_THREADS = ("thread/unsubscribe", "thread/delete", "thread/archive")


def _opened(said: WireMessage) -> str | None:
    """The thread that an answer opens."""
    if said.sent or said.result is None or said.answers not in OPENS_THREADS:
        return None
    id: str = said.result["thread"]["id"]
    return id


def _turn_of(params: Json) -> str | None:
    turn = params.get("turn")
    id: str | None = turn["id"] if isinstance(turn, dict) else params.get("turnId")
    return id


def _is_background(item: Mapping[str, Json]) -> bool:
    """A command on a terminal may go on after its turn."""
    return item["type"] == "commandExecution" and item.get("processId") is not None


def rule_01_the_answer_comes_first() -> Check:
    """The answer to a request that begins a turn or a thread comes before all that it causes. A turn that was heard of
    before the request was made is one that the request joins.
    """
    first_of: dict[str, int] = {}
    answered: set[str] = set()

    def check(said: WireMessage) -> Iterator[str]:
        if said.of_threads:
            method, params = said.method, said.params
            name = _turn_of(params) if method.startswith(("turn/", "item/")) else None
            if method == "thread/started":
                name = params["thread"]["id"]
            if name is not None:
                first_of.setdefault(name, said.position)
        id = _opened(said)
        if not said.sent and said.result is not None and said.answers in STARTS_TURNS:
            id = said.result["turn"]["id"]
        if id is not None:
            heard = first_of.get(id, said.position)
            if id not in answered and said.asked_at < heard < said.position:
                yield f"{said.answers} is answered after something about {id}"
            answered.add(id)

    return check


def rule_02_a_thread_is_announced_once_it_is_answered() -> Check:
    """`thread/started` is the next notification about a thread after the answer that opens it, and comes only so."""
    opened: set[str] = set()
    announced: set[str] = set()

    def check(said: WireMessage) -> Iterator[str]:
        id = _opened(said)
        if id is not None:
            opened.add(id)
        elif said.of_threads and said.method == "thread/started":
            id = said.params["thread"]["id"]
            if id in announced or id not in opened:
                yield f"thread/started for {id}, which no answer opened"
            announced.add(id)
        elif said.of_threads:
            thread = said.params.get("threadId")
            if thread in opened and thread not in announced:
                yield f"{said.method} comes before thread/started of {thread}"

    return check


def rule_03_active_then_started_then_the_users_words() -> Check:
    """A thread is active before its turn starts; the first item is what the user said, begun and ended at once."""
    active: dict[str, bool] = {}
    waiting: dict[str, str] = {}  # thread → "item" before its first item, then the id of that item

    def check(said: WireMessage) -> Iterator[str]:
        if not said.of_threads:
            return
        method, params = said.method, said.params
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
                    return
                if item["type"] not in BEGINS_WITHOUT_WORDS:
                    yield f"the first item of {params['turnId']} is {item['type']}"
            elif item["id"] != waiting[thread]:
                yield f"{item['id']} comes between start and end of the user's words {waiting[thread]}"
            del waiting[thread]

    return check


def rule_04_a_thread_runs_one_turn_at_a_time() -> Check:
    running: dict[str, str] = {}

    def check(said: WireMessage) -> Iterator[str]:
        if not said.of_threads:
            return
        thread = str(said.params.get("threadId"))
        if said.method == "turn/started":
            if thread in running:
                yield f"{said.params['turn']['id']} starts while {running[thread]} runs"
            running[thread] = said.params["turn"]["id"]
        elif said.method == "turn/completed" and running.pop(thread, None) != said.params["turn"]["id"]:
            yield f"{said.params['turn']['id']} ends and does not run"

    return check


def rule_04_an_item_starts_before_anything_about_it() -> Check:
    """`item/started` comes once, inside its turn, before deltas, questions and the completion."""
    running: dict[str, str] = {}
    started: set[tuple[str, str]] = set()
    ended: set[tuple[str, str]] = set()

    def check(said: WireMessage) -> Iterator[str]:
        if not said.of_threads:
            return
        method, params = said.method, said.params
        thread = str(params.get("threadId"))
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


def rule_05_an_item_ends_once_before_its_turn() -> Check:
    """A command on a terminal that goes on is the one exception."""
    open_items: dict[tuple[str, str], str] = {}
    completed: set[tuple[str, str]] = set()

    def check(said: WireMessage) -> Iterator[str]:
        if not said.of_threads:
            return
        params = said.params
        if said.method == "item/started":
            if not _is_background(params["item"]):
                open_items[params["threadId"], params["item"]["id"]] = params["turnId"]
        elif said.method == "item/completed":
            key = params["threadId"], params["item"]["id"]
            if key in completed:
                yield f"{params['item']['id']} ends twice"
            completed.add(key)
            open_items.pop(key, None)
        elif said.method == "turn/completed":
            turn = params["turn"]["id"]
            for key in [key for key, of in open_items.items() if of == turn]:
                yield f"{key[1]} is open when {turn} ends"
                del open_items[key]

    return check


def rule_06_a_thread_waits_before_it_asks() -> Check:
    """A thread that asks for an approval says first that it waits for one."""
    flags: dict[str, list[str]] = {}

    def check(said: WireMessage) -> Iterator[str]:
        if not said.of_threads:
            return
        thread = str(said.params.get("threadId"))
        if said.method == "thread/status/changed":
            flags[thread] = said.params["status"].get("activeFlags") or []
        elif said.method.endswith("/requestApproval") and "waitingOnApproval" not in flags.get(thread, []):
            yield f"{said.method} is asked in {thread}, which does not wait"

    return check


def rule_07_usage_follows_what_it_paid_for() -> Check:
    """When usage is sent, no message and no reasoning of the model is open."""
    open_items: dict[str, set[str]] = {}

    def check(said: WireMessage) -> Iterator[str]:
        if not said.of_threads:
            return
        of_thread = open_items.setdefault(str(said.params.get("threadId")), set())
        item = said.params.get("item") or {}
        if said.method == "item/started" and item.get("type") in ("agentMessage", "reasoning"):
            of_thread.add(item["id"])
        elif said.method == "item/completed":
            of_thread.discard(item["id"])
        elif said.method == "thread/tokenUsage/updated" and of_thread:
            yield f"usage of {said.params['turnId']} is sent while {sorted(of_thread)} are open"

    return check


def rule_08_a_diff_follows_its_change() -> Check:
    """`turn/diff/updated` comes after a file change, or a command that made one, and only when it changed."""
    changed: set[str] = set()
    last: dict[str, str] = {}

    def check(said: WireMessage) -> Iterator[str]:
        if not said.of_threads:
            return
        turn = str(said.params.get("turnId"))
        if said.method == "item/completed":
            if said.params["item"]["type"] in ("fileChange", "commandExecution"):
                changed.add(turn)
        elif said.method == "turn/diff/updated":
            if turn not in changed:
                yield f"a diff of {turn} comes before any change"
            if last.get(turn) == said.params["diff"]:
                yield f"the same diff of {turn} comes twice"
            last[turn] = said.params["diff"]

    return check


def rule_09_a_failed_turn_ends_with_its_error() -> Check:
    """A final error comes before `turn/completed` with the same error; only retries are announced otherwise."""
    final: dict[str, Json] = {}

    def check(said: WireMessage) -> Iterator[str]:
        if not said.of_threads:
            return
        if said.method == "error" and not said.params["willRetry"]:
            final[said.params["turnId"]] = said.params["error"]
        elif said.method == "turn/completed":
            turn = said.params["turn"]
            if (turn["status"] == "failed") != (turn["error"] is not None):
                yield f"{turn['id']} is {turn['status']} with error {turn['error']}"
            if turn["status"] == "failed" and final.get(turn["id"]) != turn["error"]:
                yield f"{turn['id']} fails with {turn['error']}, the error said {final.get(turn['id'])}"
            if turn["status"] == "completed" and turn["id"] in final:
                yield f"{turn['id']} completes after a final error"

    return check


def rule_10_nothing_follows_the_end_of_a_turn() -> Check:
    """`turn/completed` comes once and last, but for what goes on on a terminal."""
    ended: set[str] = set()
    background: set[str] = set()

    def check(said: WireMessage) -> Iterator[str]:
        if not said.of_threads:
            return
        params = said.params
        turn, item = _turn_of(params), params.get("item") or {}
        if said.method == "item/started" and _is_background(item):
            background.add(item["id"])
        id = params.get("itemId") or item.get("id")
        if turn in ended and id not in background and said.method != "thread/tokenUsage/updated":
            yield f"{said.method} comes after the end of {turn}"
        if said.method == "turn/completed":
            ended.add(str(turn))

    return check


def rule_11_a_turn_ends_before_its_thread_is_idle() -> Check:
    running: dict[str, str] = {}

    def check(said: WireMessage) -> Iterator[str]:
        if not said.of_threads:
            return
        thread = str(said.params.get("threadId"))
        if said.method == "turn/started":
            running[thread] = said.params["turn"]["id"]
        elif said.method == "turn/completed":
            running.pop(thread, None)
        elif said.method == "thread/status/changed" and thread in running:
            status = said.params["status"]["type"]
            if status != "active":
                yield f"{thread} is {status} while {running[thread]} runs"

    return check


def rule_12_a_question_is_resolved_before_its_turn_ends() -> Check:
    asked: dict[str, str | None] = {}

    def check(said: WireMessage) -> Iterator[str]:
        if not said.of_threads:
            return
        id = said.message.get("id")
        if id is not None and "threadId" in said.params and said.method not in HAS_NO_RESOLVED:
            asked[json.dumps(id)] = said.params.get("turnId")
        elif said.method == "serverRequest/resolved":
            request = json.dumps(said.params["requestId"])
            if request not in asked:
                yield f"{said.params['requestId']} is resolved and was not asked"
            asked.pop(request, None)
        elif said.method == "turn/completed":
            ended = said.params["turn"]["id"]
            for request in [request for request, turn in asked.items() if turn == ended]:
                yield f"request {request} is open when {ended} ends"
                del asked[request]

    return check


def rule_13_both_apis_send_items_in_one_order() -> Check:
    """Where the conversation API listens too, the messages that end are the same, in the same order."""
    ends: dict[str, tuple[list[str], list[str]]] = {}

    def check(said: WireMessage) -> Iterator[str]:
        params = said.params
        if said.sent:
            return
        if said.method == "codex/event/agent_message":
            thread, text, place = params["conversationId"], params["msg"]["message"], 0
        elif said.method == "item/completed" and params["item"]["type"] == "agentMessage":
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

    def check(said: WireMessage) -> Iterator[str]:
        if said.sent and said.method in LEAVES_THREADS:
            left.add(said.params["threadId"])
        elif said.of_threads and said.method == "turn/started":
            running[said.params["turn"]["id"]] = said.params["threadId"]
        elif said.of_threads and said.method == "turn/completed":
            running.pop(said.params["turn"]["id"], None)
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
