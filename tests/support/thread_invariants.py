"""Invariants of every connection over the thread API and the Agent Client Protocol, beyond the published schemas."""

import json
from collections.abc import Sequence
from pathlib import Path

from app_server.cli.inspect.rules.order import (
    RPC_RULES_OF_THE_END,
    OrderChecker,
    Requests,
    rpc_01_an_answer_has_one_request,
    rpc_03_an_answer_is_a_result_or_an_error,
)
from app_server.cli.inspect.rules.session_rules import SESSION_RULES
from app_server.cli.inspect.rules.thread_rules import THREAD_RULES, THREAD_RULES_OF_THE_END
from app_server.engine.storage.rollout_names import conversation_of
from app_server.engine.storage.turn_index import TurnIndexes
from app_server.engine.storage.turn_pages import open_history
from app_server.server.apis.v2.turn_shapes import shown_turn
from app_server_protocol.encoding import Json
from app_server_protocol.v2.turn import TurnItemsView
from tests.support.client import Client, Logged


def violated_thread_invariants(log: Sequence[Logged], *, left_early: bool = False) -> list[str]:
    """Return the violations. Rules about ends are checked only for clients that stayed to the end."""
    checker, requests = OrderChecker(THREAD_RULES, THREAD_RULES_OF_THE_END), Requests()
    broken = []
    for entry in log:
        if isinstance(entry.message, dict):
            broken += checker.see(requests.match(entry.sent, entry.message))
    if not left_early:
        broken += checker.end()
    return [f"{rule}: {problem}" for rule, problem in broken]


StoredItems = dict[tuple[str, str], Json]
"""Items by the ids of their turn and item."""


def stored_otherwise(
    received: Sequence[Json], rollouts: Sequence[Path], known: dict[Path, StoredItems] | None = None
) -> list[str]:
    """Return items that the client received and that the files of its threads hold in another form or not at all. Items
    of reverted turns may be missing. `known` caches the items of the files for other clients of the same threads.
    """
    stored = {conversation_of(path.name, ""): path for path in rollouts}
    items = {} if known is None else known
    broken = []
    for message in received:
        thread = (message.get("params") or {}).get("threadId")
        if message.get("method") != "item/completed" or thread not in stored:
            continue
        path, params = stored[thread], message["params"]
        if path not in items:
            items[path] = stored_items(thread, path)
        found = items[path].get((params["turnId"], params["item"]["id"]))
        if found != params["item"] and (found is not None or not is_reverted(path)):
            broken.append(
                f"an item is stored otherwise: {json.dumps(params['item'])[:300]}, {json.dumps(found)[:300]}"
            )
    return broken


def stored_items(thread: str, path: Path) -> StoredItems:
    """Return the items of the thread as a later server shows them."""
    with open_history(path, thread, TurnIndexes()) as history:
        shown = [shown_turn(turn, TurnItemsView.FULL).to_value() for turn in history.all_turns()]
    return {(turn["id"], item["id"]): item for turn in shown for item in turn["items"]}


def is_reverted(path: Path) -> bool:
    return b"thread_rolled_back" in path.read_bytes()


RULES = (rpc_01_an_answer_has_one_request, rpc_03_an_answer_is_a_result_or_an_error, *SESSION_RULES)


def violated_session_invariants(client: Client) -> list[str]:
    """Return the violations of the server. The client may send anything."""
    broken = [f"a line of stdout is no message: {line[:100]!r}" for line in client.garbage]
    checker, requests = OrderChecker(RULES, RPC_RULES_OF_THE_END), Requests()
    for entry in client.log:
        if isinstance(entry.message, dict):
            found = checker.see(requests.match(entry.sent, entry.message))
            said = json.dumps(entry.message)[:300]
            broken += [f"{rule}: {problem}: {said}" for rule, problem in found if not entry.sent]
    if not client.left_early:
        broken += [f"{rule}: {problem}" for rule, problem in checker.end()]
    return broken
