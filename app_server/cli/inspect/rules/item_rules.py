"""The order rules of the thread API about the items of turns, one function for each rule. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from app_server.cli.inspect.rules.order import Check, WireMessage, of_threads
from app_server_protocol.encoding import Json


def is_background(item: Mapping[str, Json]) -> bool:
    """Return whether it is a command on a terminal, which may continue after its turn."""
    return item["type"] == "commandExecution" and item.get("processId") is not None


def rule_03_the_words_that_begin_a_turn_come_first() -> Check:
    """Check that a turn which `turn/start` begins has the user's input as its first item. A compaction may precede, and
    commands that the user runs in the meantime. A thread with a goal begins turns by itself; input may be added to such
    a turn before the client knows that it runs.
    """
    running: set[str] = set()
    have_goals: set[str] = set()
    begun_by_words: set[str] = set()

    def check(wire: WireMessage) -> Iterator[str]:
        if wire.asked is not None and wire.answers == "turn/start" and wire.result is not None:
            if wire.asked.params.get("input"):
                begun_by_words.update({wire.result["turn"]["id"]} - running)  # input may join a running turn
        elif wire.joined:
            begun_by_words.intersection_update(running)  # the thread in the answer contains the input
        elif wire.of_threads and wire.method == "turn/started":
            running.add(wire.params["turn"]["id"])
        elif wire.of_threads and wire.method == "thread/goal/updated":
            have_goals.add(wire.thread)
        elif wire.of_threads and wire.method == "item/started" and wire.params["turnId"] in begun_by_words:
            turn, item = wire.params["turnId"], wire.params["item"]
            if item["type"] != "contextCompaction" and item.get("source") != "userShell":
                begun_by_words.remove(turn)
                if item["type"] != "userMessage" and wire.thread not in have_goals:
                    yield f"the first item of {turn} is {item['type']}"

    return check


@of_threads
def rule_04_an_item_starts_before_anything_about_it() -> Check:
    """Check that `item/started` comes once, inside its turn, before deltas, questions and the completion."""
    running: dict[str, str] = {}
    started: set[tuple[str, str]] = set()
    ended: set[tuple[str, str]] = set()
    told_again: set[tuple[str, str]] = set()

    def check(wire: WireMessage) -> Iterator[str]:
        method, params = wire.method, wire.params
        thread = wire.thread
        if wire.joined:
            told_again.update(key for key in started if key[0] == wire.joined["id"])
        elif method in ("turn/started", "turn/completed"):
            running[thread] = params["turn"]["id"] if method == "turn/started" else ""
        elif method == "item/started":
            key = (thread, params["item"]["id"])
            if key in started - told_again:
                yield f"{key[1]} starts twice"
            told_again.discard(key)
            if not is_background(params["item"]) and running.get(thread) != params["turnId"]:
                yield f"{key[1]} starts outside of its turn"
            started.add(key)
            ended.discard(key)  # a thread that went back may use its id again
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
    """Check all items except commands on a terminal, which may continue."""
    open_items: dict[tuple[str, str], str] = {}
    completed: set[tuple[str, str]] = set()

    def check(wire: WireMessage) -> Iterator[str]:
        params = wire.params
        if wire.method == "item/started":
            if not is_background(params["item"]):
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


def rule_07_usage_follows_what_it_paid_for() -> Check:
    """Check that no message and no reasoning of the model is open when usage is sent. A client that joins receives
    usage once at any time.
    """
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
    """Check that `turn/diff/updated` comes after a file change or a command, and only if the diff changed. A client
    that joins does not know the earlier changes.
    """
    joined: set[str] = set()
    changed: set[str] = set()
    last: dict[str, str] = {}

    def check(wire: WireMessage) -> Iterator[str]:
        turn = str(wire.params.get("turnId"))
        if wire.joined:
            joined.add(wire.joined["id"])
        elif wire.method == "turn/started" and wire.thread in joined:
            joined.remove(wire.thread)
            changed.add(wire.params["turn"]["id"])
        elif wire.method == "item/completed":
            if wire.params["item"]["type"] in ("fileChange", "commandExecution"):
                changed.add(turn)
        elif wire.method == "turn/diff/updated":
            if turn not in changed:
                yield f"a diff of {turn} comes before any change"
            if last.get(turn) == wire.params["diff"]:
                yield f"the same diff of {turn} comes twice"
            last[turn] = wire.params["diff"]

    return check


def rule_13_both_apis_send_items_in_one_order() -> Check:
    """If the conversation API is subscribed too, check that the same messages end in the same order."""
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
