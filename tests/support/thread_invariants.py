"""What holds for every client of the thread API, whatever a scenario is about: turns and items in order."""

from __future__ import annotations

from collections.abc import Sequence

from protocol.base import Json


def violated_thread_invariants(received: Sequence[Json]) -> list[str]:
    """In words; `received` is what the server sent, in order."""
    broken: list[str] = []
    open_turns: dict[str, str] = {}
    open_items: dict[tuple[str, str], Json] = {}
    ended_items: set[tuple[str, str]] = set()
    for message in received:
        method, params = message.get("method"), message.get("params") or {}
        thread, turn = str(params.get("threadId")), params.get("turnId")
        if method == "turn/started":
            if thread in open_turns:
                broken.append(f"{thread}: a turn starts while {open_turns[thread]} runs")
            open_turns[thread] = params["turn"]["id"]
        elif method == "turn/completed":
            if open_turns.pop(thread, None) != params["turn"]["id"]:
                broken.append(f"{thread}: {params['turn']['id']} ends and does not run")
            broken += [f"{key} is open when its turn ends" for key in open_items if key[0] == thread]
        elif method == "item/started":
            key = (thread, params["item"]["id"])
            if key in open_items or key in ended_items:
                broken.append(f"{key} starts twice")
            if open_turns.get(thread) != turn:
                broken.append(f"{key} starts outside of its turn")
            open_items[key] = params["item"]
        elif method == "item/completed":
            key = (thread, params["item"]["id"])
            started = open_items.pop(key, None)
            if started is None or started["type"] != params["item"]["type"]:
                broken.append(f"{key} ends and has not started")
            ended_items.add(key)
        elif "itemId" in params and "id" not in message and (thread, params["itemId"]) not in open_items:
            broken.append(f"{method}: {params['itemId']} is not open")
    return broken
